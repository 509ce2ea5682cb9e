r"""Change a program, and compute everything again.

This sums what each shop sells. Run it; then make it sum `amount - refund`, and run it again. That is refused, with the
line: what was summed so far does not fit. So have it begin anew:

penstock stream stop revenue                                        # if it runs
penstock stream reset revenue                                       # shows what it deletes, and asks
penstock stream run docs/examples/streams/reprocess.py

It then reads all sales from the start. Each shop's new sum goes into the same topic, behind the old one; the newest of
a key counts, so those who read the topic as a table need do nothing. A change of something without state, such as a
filter, is not refused, but counts only for what comes from then on; a reset makes it count for all.

penstock topic create shop-sales revenue
echo 'rome={"amount": 5.0, "refund": 1.0}' | penstock produce shop-sales -K =
penstock stream run docs/examples/streams/reprocess.py              # until Ctrl-C
python docs/examples/streams/reprocess.py localhost:9092            # or: take in what is there, and end
penstock consume revenue --format '%k: %s\n'
"""

import sys

from penstock.streams import TEXT, Application, col, fn, json

app = Application("revenue", key=TEXT, value=json("amount DOUBLE, refund DOUBLE"))
sales = app.stream("shop-sales")
revenue = sales.group_by_key().aggregate(total=fn.sum(col.amount), step="sum")
revenue.to_stream().to("revenue", value=json())

if __name__ == "__main__":
    app.catch_up(sys.argv[1])
