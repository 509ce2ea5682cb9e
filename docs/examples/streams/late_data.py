r"""Count sales per minute, and put into a topic of its own what comes too late for its minute.

A minute takes in late records for 10 seconds after its end, by the time of the stream. Then it is closed, and each sale
that is still to come goes to `late-sales` as it was, once. Nothing is lost: every sale is counted, or is there.

penstock topic create sales sales-per-minute late-sales
echo 'rome={"amount": 5.0}' | penstock produce sales -K =
penstock stream run docs/examples/streams/late_data.py              # until Ctrl-C
python docs/examples/streams/late_data.py localhost:9092            # or: take in what is there, and end
penstock consume late-sales --format '%k: %s\n'
"""

import sys

from penstock.streams import TEXT, Application, col, fn, json, tumbling

app = Application("late-data", key=TEXT, value=json("amount DOUBLE"))
per_minute = (
    app.stream("sales")
    .group_by_key()
    .window(tumbling("1 minute", grace="10 seconds"), late="late-sales")
    .aggregate(total=fn.sum(col.amount), sales=fn.count("*"), step="per-minute")
)
(
    per_minute.to_stream()
    .select_key(fn.concat_ws(" ", col.key.key, fn.date_format(col.key.start, "HH:mm")))
    .to("sales-per-minute", key=TEXT, value=json())
)

if __name__ == "__main__":
    app.catch_up(sys.argv[1])
