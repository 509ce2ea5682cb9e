// A member of a group with franz-go, for as long as its standard input is open.
//
//	franz BOOTSTRAP GROUP TOPIC PROTOCOL
//	franz BOOTSTRAP ID TOPIC transactions NAME COUNT PARTITIONS
//
// PROTOCOL is range, roundrobin, sticky, cooperative-sticky or consumer (KIP-848). Prints a line of JSON for every
// partition assigned or revoked and every record; "at" is when, in nanoseconds. Commits what it has printed.
//
// The second form writes COUNT transactions with the transactional id ID: number N writes NAME-N to every partition, and
// every third is aborted.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type line struct {
	Event      string  `json:"event"`
	At         int64   `json:"at"`
	Partitions []int32 `json:"partitions,omitempty"`
	Partition  int32   `json:"partition"`
	Offset     int64   `json:"offset"`
	Value      string  `json:"value,omitempty"`
}

var (
	output sync.Mutex
	stdout = json.NewEncoder(os.Stdout)
)

func note(l line) {
	output.Lock()
	defer output.Unlock()
	l.At = time.Now().UnixNano()
	if err := stdout.Encode(l); err != nil {
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	fail(err)
	return n
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func transact(ctx context.Context, bootstrap, id, topic, name string, count, partitions int) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(id),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	fail(err)
	defer client.Close()
	for n := 0; n < count; n++ {
		fail(client.BeginTransaction())
		for partition := 0; partition < partitions; partition++ {
			record := &kgo.Record{Partition: int32(partition), Value: []byte(fmt.Sprintf("%s-%d", name, n))}
			fail(client.ProduceSync(ctx, record).FirstErr())
		}
		fail(client.EndTransaction(ctx, kgo.TransactionEndTry(n%3 != 2)))
		note(line{Event: "ended", Offset: int64(n)})
	}
}

func main() {
	bootstrap, group, topic, protocol := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	ctx := context.Background()
	if protocol == "transactions" {
		transact(ctx, bootstrap, group, topic, os.Args[5], number(os.Args[6]), number(os.Args[7]))
		return
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ClientID("franz-go"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.SessionTimeout(10 * time.Second),
		kgo.AutoCommitMarks(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
			note(line{Event: "assigned", Partitions: assigned[topic]})
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
			if err := client.CommitMarkedOffsets(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "commit:", err)
			}
			note(line{Event: "revoked", Partitions: revoked[topic]})
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			note(line{Event: "revoked", Partitions: lost[topic]})
		}),
	}
	balancers := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
		"sticky":             kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	if balancer, ok := balancers[protocol]; ok {
		options = append(options, kgo.Balancers(balancer))
	} else {
		options = append(options, kgo.WithContext(context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stopping, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for stopping.Err() == nil {
		fetches := client.PollFetches(stopping)
		fetches.EachError(func(_ string, _ int32, err error) {
			if stopping.Err() == nil {
				fmt.Fprintln(os.Stderr, "fetch:", err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			note(line{Event: "record", Partition: r.Partition, Offset: r.Offset, Value: string(r.Value)})
			client.MarkCommitRecords(r)
		})
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	note(line{Event: "closed"})
}
