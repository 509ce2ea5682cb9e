r"""Raise an alert when something does not happen: an order that is not paid within 15 minutes.

Both topics have the order's id as key. An order sets a timer, its payment takes it back. Timers go by the time of the
stream: 15 minutes have passed when records have come that are so much younger.

penstock topic create placed settled unpaid
echo 'o1={"amount": 12.5}' | penstock produce placed -K =
penstock stream run docs/examples/streams/alerts.py                 # until Ctrl-C
python docs/examples/streams/alerts.py localhost:9092               # or: take in what is there, and end
penstock consume unpaid --format '%k: %s\n'
"""

import sys

from penstock.streams import TEXT, Application, Context, Processor, Record, Timer, json, value_state


class Unpaid(Processor):
    """Waits for an order's payment."""

    amount = value_state()

    def process(self, record: Record, context: Context) -> None:
        """Called with every order and every payment."""
        if record.topic == "placed":
            self.amount = record.value.amount
            context.set_timer("too-late", after="15 minutes")
        else:
            context.cancel_timer("too-late")
            del self.amount

    def on_timer(self, timer: Timer, context: Context) -> None:
        """Called when no payment has come."""
        context.emit({"amount": self.amount, "alert": "not paid within 15 minutes"})
        del self.amount


app = Application("alerts", key=TEXT, value=json("amount DOUBLE"))
events = app.stream("placed", "settled")
events.process_values(Unpaid, returns="amount DOUBLE, alert STRING", step="unpaid").to("unpaid", value=json())

if __name__ == "__main__":
    app.catch_up(sys.argv[1])
