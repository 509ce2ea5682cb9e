"""The server.

Start with `broker.py` (the composition root: what there is and how it starts and stops), then `dispatch.py` (the table
of APIs) and `handlers/` (one module per API). `server.py` and `connection.py` are the network side; `fetching.py` and
`fetch_sessions.py` serve Fetch. Imports everything above it; nothing but the command line and `testing` imports it.
"""
