"""Clients of any Kafka. They never import the broker, and it never imports them.

Start reading at `producer`, `consumer` and `admin`; `aio` has their asyncio twins. They stand on librdkafka, and users
find their names in `penstock` itself. `processing` and `retry` are what `Consumer.process` does; `prefetch` is how
records are handed over; `_records` is its native part. `connection`, `cluster` and `shared_transaction` are for
whoever needs the bare protocol: to one broker, to all of them, and for a transaction that many processes write to.
"""
