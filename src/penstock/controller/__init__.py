"""Who leads what: the decisions that change cluster metadata.

Start with `controller.py` (the shell: one decision at a time becomes records in the metadata log). The decisions
themselves are pure functions from an image to records: `topics.py`, `placement.py`, `configs.py`. May import metadata,
config and wire; imported by broker.
"""
