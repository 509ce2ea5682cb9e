"""Kafka's configuration keys, as frozen typed values.

Start with `definition.py` (what a key is: name, type, default, limits, one line of documentation), then `topic.py`,
`group.py` and `broker.py` (the keys themselves). `properties.py` reads `server.properties`. Everything may import this
package; it imports nothing of ours.
"""
