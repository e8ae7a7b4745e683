package engine

import (
	"context"
	"sync"
	"time"

	"clustermap/internal/connection"
)

// longestLinger returns the longest time that Close waits for queued messages,
// if it waits.
func (o *Config) longestLinger() time.Duration {
	if o.Linger == 0 {
		return DefaultLinger
	}
	return o.Linger
}

// linger finishes all connections concurrently.
func (s *Socket) linger() {
	ctx, cancel := context.WithTimeout(s.lingering, s.Config().longestLinger())
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range s.Pipes() {
		wg.Go(func() {
			if !p.finish(ctx) && s.lingering.Err() != nil {
				s.hurried.Store(true)
			}
		})
	}
	wg.Wait()
}

// finishWithin is finish for at most the longest time that Close would wait.
func (p *Pipe) finishWithin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.socket.Config().longestLinger())
	defer cancel()
	p.finish(ctx)
}

// finish waits until the messages queued on the pipe have been written, and
// then lets the peer close the connection, so that a reset does not destroy any
// of them. It reports whether all messages were written.
func (p *Pipe) finish(ctx context.Context) bool {
	if !p.drain(ctx) {
		return false
	}
	if p.dialer != nil {
		p.dialer.done.Store(true)
	}
	if peer := p.peer.Load(); peer != nil && peer.conduit.MessagesOut.Load() > 0 {
		peer.conn.HalfClose(ctx)
	}
	return true
}

// drain waits until the messages queued on the pipe have been written. It
// reports false if the context ends first or, with the default Linger, if the
// peer takes nothing for LingerPatience.
func (p *Pipe) drain(ctx context.Context) bool {
	if p.Out.Flushed() == nil {
		return true
	}
	var look <-chan time.Time
	if p.socket.Config().Linger == 0 {
		look = time.Tick(LingerPatience / lingerLooks)
	}
	var seen progress
	p.advances(&seen)
	for idle := 0; ; {
		flushed := p.Out.Flushed()
		if flushed == nil {
			return true
		}
		select {
		case <-flushed:
		case <-ctx.Done():
			return false
		case <-look:
			if idle++; p.advances(&seen) {
				idle = 0
			}
			if idle == lingerLooks {
				return false
			}
		}
	}
}

// progress is how much a peer had taken at a check.
type progress struct {
	conn *conn
	flow connection.Flow
}

// advances reports whether the peer has taken bytes since the state in seen, and updates
// seen. Of connections that are not established yet, only the first one counts: otherwise
// a server that accepts connections and drops them would keep Close waiting.
func (p *Pipe) advances(seen *progress) bool {
	var c *conn
	if peer := p.peer.Load(); peer != nil {
		c = peer.conn
	} else if p.dialer != nil {
		c = p.dialer.conn.Load()
		if seen.conn != nil && c != seen.conn {
			return false
		}
	}
	if c == nil || c.Stream.Conn == nil { // not connected, or inproc
		return false
	}
	now := progress{c, c.Flow()}
	was := *seen
	*seen = now
	return now != was
}
