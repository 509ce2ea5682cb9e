r"""Count words. A stream of lines goes in, a table of words comes out: its changes are the records of a topic.

penstock topic create lines word-counts
echo 'to be or not to be' | penstock produce lines
penstock stream run docs/examples/streams/word_count.py             # until Ctrl-C
python docs/examples/streams/word_count.py localhost:9092           # or: take in what is there, and end
penstock consume word-counts --format '%k: %s\n'
"""

import sys

from penstock.streams import TEXT, Application, col, json

app = Application("word-count", key=TEXT, value=TEXT)
words = app.stream("lines").flat_map_values("split(lower(value), '[^a-z]+')").filter("value <> ''")
counts = words.group_by(col.value, key=TEXT).count(step="count")
counts.to_stream().map_values(count=col.value).to("word-counts", value=json())

if __name__ == "__main__":
    app.catch_up(sys.argv[1])
