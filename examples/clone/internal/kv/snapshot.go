package kv

import (
	"context"
	"fmt"
	"strings"

	"clustermap/sockets"
)

// SendSnapshot answers a client's ICANHAZ?: it sends the pairs whose keys begin
// with subtree, in any order, then KTHXBAI with the number of the last update that
// they include. frames is Message.Three or Message.Five. It prints a line, and
// gives up a client that has gone or takes nothing.
func SendSnapshot(ctx context.Context, snapshot *sockets.Router, client []byte, frames func(Message) [][]byte,
	subtree string, sequence int64, pairs map[string]Message) {
	var err error
	send := func(m Message) {
		if err == nil {
			err = snapshot.Send(ctx, append([][]byte{client}, frames(m)...)...)
		}
	}
	for key, m := range pairs {
		if strings.HasPrefix(key, subtree) {
			// UUID and properties belong to the update, not to the pair (RFC 12).
			send(Message{Key: key, Sequence: m.Sequence, Body: m.Body})
		}
	}
	send(Message{Key: "KTHXBAI", Sequence: sequence, Body: []byte(subtree)})
	if err != nil {
		fmt.Printf("no snapshot %d: %v\n", sequence, err)
		return
	}
	fmt.Println("snapshot", sequence)
}

// TakeSnapshot stores a snapshot in pairs, up to KTHXBAI, and returns the number of the
// last update that it includes. parse is ParseThree or ParseFive.
func TakeSnapshot(ctx context.Context, snapshot *sockets.Dealer, parse func([][]byte) (Message, bool), pairs map[string]Message) int64 {
	for {
		m, ok := parse(Must(snapshot.Recv(ctx)))
		switch {
		case ok && m.Key == "KTHXBAI":
			return m.Sequence
		case ok:
			pairs[m.Key] = m
		}
	}
}
