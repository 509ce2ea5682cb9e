// A member of a group with Sarama, for as long as its standard input is open.
//
//	sarama BOOTSTRAP GROUP TOPIC PROTOCOL
//
// PROTOCOL is range, roundrobin or sticky. Prints a line of JSON for every partition assigned or revoked and every
// record; "at" is when, in nanoseconds. Commits what it has printed.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
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

type handler struct{ topic string }

func (h handler) Setup(session sarama.ConsumerGroupSession) error {
	note(line{Event: "assigned", Partitions: session.Claims()[h.topic]})
	return nil
}

func (h handler) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	note(line{Event: "revoked", Partitions: session.Claims()[h.topic]})
	return nil
}

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			note(line{Event: "record", Partition: message.Partition, Offset: message.Offset, Value: string(message.Value)})
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	bootstrap, group, topic, protocol := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	strategies := map[string]sarama.BalanceStrategy{
		"range":      sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		"sticky":     sarama.NewBalanceStrategySticky(),
	}
	config := sarama.NewConfig()
	config.ClientID = "sarama"
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 500 * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 10 * time.Second
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[protocol]}
	member, err := sarama.NewConsumerGroup([]string{bootstrap}, group, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stopping, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for stopping.Err() == nil {
		if err := member.Consume(stopping, []string{topic}, handler{topic}); err != nil {
			fmt.Fprintln(os.Stderr, "consume:", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	if err := member.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "close:", err)
	}
	note(line{Event: "closed"})
}
