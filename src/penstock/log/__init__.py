"""One partition's bytes on disk, exactly as Kafka keeps them.

Start with `log.py` (a log is a run of segments), then `segment.py` and the indexes; `recovery.py` opens what a crash
left, `producer_state.py` recognises duplicates, `validation.py` decides what may enter. `compaction.py` says what is to
be compacted, `cleaner.py` does it, `swap.py` puts the result in place; `scrub.py` looks for damage. `directory.py` and
`logs.py` are about many logs. Synchronous: only `group_commit.py` knows of the event loop. May import wire and config;
imported by metadata, replica and broker.
"""
