"""What the coordinators of groups and of transactions have in common: state that is the sum of a partition's records.

`shards.py` follows which partitions of an internal topic this broker leads, and loads them; `appends.py` appends to
them and waits for what was appended to be committed; `hashing.py` says which partition a name belongs to. Imported by
`group/`, `txn/` and `broker/`.
"""
