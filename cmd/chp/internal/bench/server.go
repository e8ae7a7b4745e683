package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"clustermap/chp"
	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/cmd/chp/internal/bench/link"
)

// server is the role in the middle: a server in memory, one that keeps a log, or one
// of a pair.
func server(p *link.Peer) error {
	alarm := &alarm{peer: p}
	o := chp.ServerOptions{Logger: slog.New(alarm)}
	if p.Data != "" {
		var err error
		if o.Sync, err = commit.ParsePolicy(p.Sync); err != nil {
			return err
		}
		if o.Log, err = durable.Open(p.Data, durable.Options{}); err != nil {
			return err
		}
	}
	if p.Pair != nil {
		o.Host, o.Port, o.Pair = p.Pair.Host, p.Pair.Port, pairOptions(p.Pair)
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
	ready := time.NewTicker(readyInterval)
	defer ready.Stop()
	for !isReady(s) {
		select {
		case <-ready.C:
		case err := <-served:
			return err
		}
	}
	alarm.on.Store(true)
	p.Send(link.Event{Kind: link.Ready, Servers: []string{s.Endpoints().Snapshot}})
	return <-served
}

// readyInterval is the interval at which a server checks whether clients may connect.
const readyInterval = 5 * time.Millisecond

// isReady reports whether clients may connect. The active server of a pair is ready
// when the other one follows it in sync.
func isReady(s *chp.Server) bool {
	st := s.Status()
	switch {
	case st.Role == chp.RoleAlone:
		return st.State == chp.ServerActive
	case st.State == chp.ServerActive:
		return st.InSync
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
