"""The coordinator of transactions: what a producer writes becomes visible as a whole or not at all.

Start with `transaction.py`, pure: what a transactional id is in, and what leads from one state to the next. What must
survive is a record (`records.py`) of `__transaction_state`; a shard (`shard.py`) is the sum of the records of one
partition. `coordinator.py` is the shell: it appends, keeps the time, and has markers written through the one method of
`markers.py`. Imported by `broker/` alone.
"""
