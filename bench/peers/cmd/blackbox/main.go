// Command blackbox measures patterns/blackbox and, in turn with it, libzmq in the design of the guide's
// Black Box: how many messages of 100 bytes a second each takes from the same publisher and works on.
//
//	cd bench/peers && go run ./cmd/blackbox -rounds 5 -cores 1 -pub-cores 0
//
// libzmq's side is in C: in each shard's thread a SUB, which passes its messages on by
// PUSH to the workers' threads. Each of those has a PULL that is connected to all shards.
package main

import (
	"context"

	"clustermap/bench/internal/blackbox"
	"clustermap/bench/peers/internal/libzmq"
)

func main() {
	blackbox.Main(map[string]blackbox.Side{"libzmq": theirs})
}

func theirs(_ context.Context, s blackbox.Spec) (blackbox.Figure, error) {
	b := libzmq.BlackBox{
		Workers: s.Workers, Count: s.Count,
		Size: blackbox.Size, Keys: blackbox.Keys, Rounds: blackbox.Rounds,
		AtKey: blackbox.AtKey, AtRound: blackbox.AtRound, AtValue: blackbox.AtValue,
	}
	for i := range s.Shards {
		b.Endpoints = append(b.Endpoints, s.Endpoint(i))
		b.Topics = append(b.Topics, s.Topics(i))
	}
	if err := b.Run(); err != nil {
		return blackbox.Figure{}, err
	}
	return blackbox.Figure{
		Messages: b.Messages, Sum: b.Sum, Wrong: b.Wrong, Elapsed: b.Elapsed, Processor: b.ProcessorTime,
	}, nil
}
