"""A replicated partition: a log, and who else has it.

Start with `partition.py` (one partition on this broker), then `isr.py` (pure: what is committed) and `replicas.py` (all
partitions of this broker, kept in step with the metadata). May import log, metadata, config and wire; imported by
broker.
"""
