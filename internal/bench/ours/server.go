// Package ours has the pipelines of this module's server and client: in memory, with a
// log, as a pair, and as a cluster.
package ours

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/internal/bench/link"
	"clustermap/internal/bench/pipeline"
)

// Pipeline is a server in memory with default options, one that keeps a log, a pair or a cluster:
// the arguments of its servers, ServerArgs, say which. Each update is a call of Client.Set;
// a replica is a client with a watch that reports every update.
var Pipeline = pipeline.Pipeline{Name: "chp", Serve: serve, Publish: publish, Follow: follow}

// ServerArgs are the arguments of a server.
type ServerArgs struct {
	Data string `json:",omitempty"` // directory of its log
	Sync string `json:",omitempty"` // when the log is flushed
	Pair *Pair  `json:",omitempty"` // of one of two servers
	Node *Node  `json:",omitempty"` // of a cluster, with its log in Data
}

func serve(p *link.Peer, ready func(servers ...string)) error {
	var args ServerArgs
	if err := json.Unmarshal(p.Args, &args); err != nil {
		return err
	}
	alarm := &alarm{peer: p}
	o := chp.ServerOptions{Logger: slog.New(alarm)}
	if args.Data != "" {
		var err error
		if o.Sync, err = commit.ParsePolicy(args.Sync); err != nil {
			return err
		}
	}
	switch {
	case args.Node != nil: // it opens the directory
		if err := args.Node.configure(p.Context(), &o, args.Data); err != nil {
			return err
		}
	case args.Data != "":
		var err error
		if o.Log, err = durable.Open(args.Data, durable.Options{}); err != nil {
			return err
		}
	}
	if args.Pair != nil {
		o.Host, o.Port, o.Pair = args.Pair.Host, args.Pair.Port, args.Pair.options()
	}
	s, err := chp.NewServer(o)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := p.Context()
	if err := s.Listen(ctx); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	check := time.NewTicker(readyInterval)
	defer check.Stop()
	for !isReady(s) {
		select {
		case <-check.C:
		case err := <-served:
			return err
		}
	}
	// A cluster goes on when another node leads; what the replicas saw and the nodes have says whether
	// that was sound.
	alarm.on.Store(args.Node == nil)
	ready(s.Endpoints().Snapshot)
	return <-served
}

// readyInterval is the interval at which a server checks whether clients may connect.
const readyInterval = 5 * time.Millisecond

// isReady reports whether clients may connect. The active server of a pair is ready
// when the other one follows it in sync, a node of a cluster when it follows a leader.
func isReady(s *chp.Server) bool {
	st := s.Status()
	switch {
	case st.Role == chp.RoleAlone:
		return st.State == chp.ServerActive
	case st.State == chp.ServerActive:
		return st.InSync || st.Role == chp.RoleNode
	}
	return st.State == chp.ServerPassive
}

// alarm is a log handler that fails the run at the first warning. A server warns when it
// is no longer in the state that the benchmark asks for: it is alone in its pair, cannot
// make a checkpoint, or disconnects a client.
type alarm struct {
	peer *link.Peer
	on   atomic.Bool // the run has begun
}

func (a *alarm) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && a.on.Load()
}

func (a *alarm) Handle(_ context.Context, r slog.Record) error {
	if a.peer.Context().Err() != nil {
		return nil // the end
	}
	text := strings.Builder{}
	text.WriteString(r.Message)
	r.Attrs(func(attr slog.Attr) bool {
		fmt.Fprintf(&text, ", %s", attr)
		return true
	})
	a.peer.Send(link.Event{Kind: link.Failed, Error: text.String()})
	return nil
}

func (a *alarm) WithAttrs([]slog.Attr) slog.Handler { return a }
func (a *alarm) WithGroup(string) slog.Handler      { return a }
