"""Bytes to objects and back. No I/O, no asyncio, and nothing of ours is imported here.

Start with `schema.py` (field tables become codecs), then `messages/` (one module per API), `api.py` (keys and versions)
and `frame.py`. Record batches are in `batch.py`, `record.py` and `compression.py`. The two Cython modules do the work:
`_codec.pyx` reads and writes messages, `_kernel.pyx` walks records.
"""
