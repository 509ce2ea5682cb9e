"""The same clients in an asyncio program.

python docs/examples/with_asyncio.py localhost:9092 orders
"""

import asyncio
import sys

from penstock import AsyncAdmin, AsyncConsumer, AsyncProducer


async def main(bootstrap: str, topic: str) -> None:
    async with AsyncAdmin(bootstrap) as admin:
        print(await admin.list_topics())

    async with AsyncProducer(bootstrap) as producer:
        await asyncio.gather(*(producer.send(topic, f'{{"order":{number}}}') for number in range(3)))

    async with AsyncConsumer(bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
        await consumer.assign([(topic, 0)])
        async for record in consumer:
            print(record.offset, record.value)


asyncio.run(main(*sys.argv[1:3]))
