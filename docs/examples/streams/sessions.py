r"""Visits to a website: pages that a user looks at with less than 30 minutes between two of them.

A visit is written when it is over: when records have come that are more than 30 minutes younger than its last page.

penstock topic create views visits
echo 'anna={"page": "/home"}' | penstock produce views -K =
penstock stream run docs/examples/streams/sessions.py               # until Ctrl-C
python docs/examples/streams/sessions.py localhost:9092             # or: take in what is there, and end
penstock consume visits --format '%k: %s\n'
"""

import sys

from penstock.streams import TEXT, Application, col, fn, json, session

app = Application("visits", key=TEXT)
views = app.stream("views", value=json("page STRING"))
visits = (
    views.group_by_key()
    .window(session("30 minutes"))
    .aggregate(
        pages=fn.count("*"),
        entry=fn.min_by(col.page, col.timestamp),
        exit=fn.max_by(col.page, col.timestamp),
        step="visit",
    )
)
visits.to_stream().select_key(col.key.key).to("visits", key=TEXT, value=json())

if __name__ == "__main__":
    app.catch_up(sys.argv[1])
