"""Cluster facts: which brokers, topics, partitions and settings there are.

Start with `log.py` (the contract), then `image.py` (pure: records in, image out), `records.py` (Kafka's record types)
and `file_log.py` (the backend for a single broker). May import wire, config and log; imported by controller, replica
and broker.
"""
