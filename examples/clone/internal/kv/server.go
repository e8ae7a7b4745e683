package kv

import (
	"context"
	"fmt"
	"strings"
	"time"

	"clustermap/sockets"
)

// Server is what the servers of models 2 to 5 have in common: it numbers and publishes
// updates, and sends snapshots. One goroutine does both, so each snapshot is the state
// between two updates.
type Server struct {
	Requests *sockets.Router // for snapshots

	ctx       context.Context
	form      Form
	publisher *sockets.Pub
	sequence  int64
	pairs     map[string]Message
}

// Serve returns a server at host.
func Serve(ctx context.Context, form Form, host string) *Server {
	s := &Server{
		// With Mandatory a snapshot waits for room in the client's queue: without it, a
		// ROUTER drops messages for a full queue. A client that reads nothing for a
		// second loses the rest.
		Requests: Must(sockets.NewRouter(sockets.Options{Mandatory: true, SendTimeout: time.Second})),
		ctx:      ctx, form: form, pairs: map[string]Message{},
		publisher: Must(sockets.NewPub(sockets.Options{})),
	}
	Check(s.Requests.Bind(ctx, "tcp://"+host+":5556"))
	Check(s.publisher.Bind(ctx, "tcp://"+host+":5557"))
	return s
}

// Collect returns the socket for the updates of clients.
func (s *Server) Collect(host string) *sockets.Pull {
	collector := Must(sockets.NewPull(sockets.Options{}))
	Check(collector.Bind(s.ctx, "tcp://"+host+":5558"))
	return collector
}

// Publish gives an update its number, publishes and stores it.
func (s *Server) Publish(m Message) {
	s.sequence++
	m.Sequence = s.sequence
	Check(s.publisher.Send(s.ctx, s.form.frames(m)...))
	s.form.apply(s.pairs, m)
}

// Answer answers a client's ICANHAZ?, which has a third frame if subtrees is set: it
// sends the pairs whose keys begin with the subtree, in any order, then KTHXBAI with the
// number of the last update that they include. It prints a line, and gives up a client
// that has gone or takes nothing.
func (s *Server) Answer(subtrees bool) {
	request, subtree := Must(s.Requests.Recv(s.ctx)), "" // identity, ICANHAZ?, subtree
	if subtrees && len(request) == 3 {
		request, subtree = request[:2], string(request[2])
	} else if subtrees {
		return
	}
	if len(request) != 2 || string(request[1]) != "ICANHAZ?" {
		return
	}
	var err error
	send := func(m Message) {
		if err == nil {
			err = s.Requests.Send(s.ctx, append([][]byte{request[0]}, s.form.frames(m)...)...)
		}
	}
	for key, m := range s.pairs {
		if strings.HasPrefix(key, subtree) {
			// UUID and properties belong to the update, not to the pair (RFC 12).
			send(Message{Key: key, Sequence: m.Sequence, Body: m.Body})
		}
	}
	send(Message{Key: "KTHXBAI", Sequence: s.sequence, Body: []byte(subtree)})
	if err != nil {
		fmt.Printf("no snapshot %d: %v\n", s.sequence, err)
		return
	}
	fmt.Println("snapshot", s.sequence)
}

// End prints the summary.
func (s *Server) End() {
	fmt.Println(Summary(s.sequence, s.pairs))
	_ = s.Requests.Close()
	_ = s.publisher.Close()
}
