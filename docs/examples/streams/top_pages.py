r"""The three pages with the most views, minute by minute.

First each page's views are counted, a minute at a time; then the counts of a minute are put together, and the highest
three are kept. Counts are final when they get there, 10 seconds after their minute.

penstock topic create page-views top-pages
echo '{"page": "/home"}' | penstock produce page-views
penstock stream run docs/examples/streams/top_pages.py              # until Ctrl-C
python docs/examples/streams/top_pages.py localhost:9092            # or: take in what is there, and end
penstock consume top-pages --format '%k: %s\n'
"""

import sys

from penstock.streams import TEXT, Application, col, fn, json, tumbling


def best_three(best, page):
    """Called with what was best so far, and one more."""
    return sorted([*best, page], key=lambda one: (-one["views"], one["page"]))[:3]


app = Application("top-pages", key=TEXT, value=json("page STRING"))
minute = tumbling("1 minute", grace="10 seconds", emit="final")
counts = app.stream("page-views").group_by(col.page, key=TEXT).window(minute).count(step="count")
top = (
    counts.to_stream()
    .map(key=fn.date_format(col.key.start, "yyyy-MM-dd HH:mm"), value={"page": col.key.key, "views": col.value})
    .group_by_key()
    .aggregate(list, best_three, returns="ARRAY<STRUCT<page: STRING, views: BIGINT>>", step="top")
)
top.to_stream().map_values(top=col.value).to("top-pages", key=TEXT, value=json())

if __name__ == "__main__":
    app.catch_up(sys.argv[1])
