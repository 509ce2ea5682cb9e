// A member of a group with KafkaJS, for as long as its standard input is open.
//
//   node main.js BOOTSTRAP GROUP TOPIC PROTOCOL
//
// KafkaJS brings only a round robin along. PROTOCOL is the name it goes by: RoundRobinAssigner among its own, roundrobin
// among others. Prints a line of JSON for every partition assigned or revoked and every record; "at" is when, in
// nanoseconds. Commits what it has printed.

const { Kafka, PartitionAssigners, logLevel } = require("kafkajs");
const fs = require("fs");

const [bootstrap, groupId, topic, protocol] = process.argv.slice(2);

function note(line) {
  const at = Math.round((performance.timeOrigin + performance.now()) * 1e6);
  fs.writeSync(1, JSON.stringify({ ...line, at }) + "\n");
}

const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.ERROR });
const named = (options) => ({ ...PartitionAssigners.roundRobin(options), name: protocol });
const consumer = kafka.consumer({
  groupId,
  heartbeatInterval: 200,
  sessionTimeout: 10000,
  maxWaitTimeInMs: 100,
  partitionAssigners: [named],
});

let owned = [];

function giveUp() {
  note({ event: "revoked", partitions: owned });
  owned = [];
}

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  owned = payload.memberAssignment[topic] || [];
  note({ event: "assigned", partitions: owned });
});
consumer.on(consumer.events.REBALANCING, giveUp);

async function main() {
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommitInterval: 500,
    eachMessage: async ({ partition, message }) => {
      note({ event: "record", partition, offset: Number(message.offset), value: message.value.toString() });
    },
  });
  process.stdin.resume();
  process.stdin.on("end", async () => {
    await consumer.stop();
    giveUp();
    await consumer.disconnect();
    note({ event: "closed" });
    process.exit(0);
  });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
