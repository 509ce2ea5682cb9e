r"""Drop records that were sent twice: of each user's transfers with the same id, the first within a day is kept.

After a day an id is forgotten, so what is remembered does not grow for ever.

penstock topic create transfers transfers-once
echo 'anna={"id": "t1", "amount": 9.5}' | penstock produce transfers -K =
penstock stream run docs/examples/streams/deduplicate.py            # until Ctrl-C
python docs/examples/streams/deduplicate.py localhost:9092          # or: take in what is there, and end
penstock consume transfers-once --format '%k: %s\n'
"""

import sys

from penstock.streams import TEXT, Application, Context, Processor, Record, json, map_state

FIELDS = "id STRING, amount DOUBLE"


class Once(Processor):
    """Passes on what it has not seen. Each key has a `seen` of its own."""

    seen = map_state(ttl="1 day")

    def process(self, record: Record, context: Context) -> None:
        """Called with every record, those of a key in order."""
        if record.value.id not in self.seen:
            self.seen[record.value.id] = True
            context.emit(record.value)


app = Application("deduplicate", key=TEXT, value=json(FIELDS))
app.stream("transfers").process_values(Once, returns=FIELDS, step="once").to("transfers-once")

if __name__ == "__main__":
    app.catch_up(sys.argv[1])
