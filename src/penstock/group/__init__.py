"""The coordinator of groups: who reads which partitions, and how far they have read.

Start with `coordinator.py`, the shell: it takes requests, appends to `__consumer_offsets` and answers; `commits.py`
does the same for committed offsets. The decisions are made by the pure parts, which know neither clock nor disk:
`classic.py` (groups whose members agree on the assignment among themselves), `consumer.py` (groups whose assignment is
computed here, KIP-848), `migration.py` between the two, and `offsets.py`. All that must survive is a record
(`records.py`); a shard (`shard.py`) is the sum of the records of one partition. Imported by `broker/` alone.
"""
