r"""Join a stream with a stream, in a window, and with a table.

Orders and payments have the order's id as key. They meet if they are no more than an hour apart. What is paid then
looks up its customer's address, as it is at that time.

penstock topic create --if-not-exists orders payments customers paid-orders shipments
echo 'anna={"city": "Rome"}' | penstock produce customers -K =
echo 'o1={"customer": "anna", "amount": 12.5}' | penstock produce orders -K =
echo 'o1={"method": "card"}' | penstock produce payments -K =
penstock stream run docs/examples/streams/joins.py                  # until Ctrl-C
python docs/examples/streams/joins.py localhost:9092                # or: take in what is there, and end
penstock consume shipments --format '%k: %s\n'
"""

import sys

from penstock.streams import TEXT, Application, col, json, within

app = Application("joins", key=TEXT)
orders = app.stream("orders", value=json("customer STRING, amount DOUBLE"))
payments = app.stream("payments", value=json("method STRING"))
customers = app.table("customers", value=json("city STRING"))

paid = orders.join(
    payments,
    within("1 hour", grace="5 minutes"),
    customer=col.left.customer,
    amount=col.left.amount,
    method=col.right.method,
    step="paid",
)
paid.to("paid-orders", value=json())

shipments = paid.select_key(col.customer).join(customers, amount=col.left.amount, city=col.right.city, step="address")
shipments.to("shipments", key=TEXT, value=json())

if __name__ == "__main__":
    app.catch_up(sys.argv[1])
