// Package majordomo measures how many requests a second go through a broker of the
// Majordomo Protocol: patterns/majordomo, and the side that a command adds for
// comparison.
//
// The load is the same for all sides, in a process of its own: workers of
// patterns/majordomo that return requests as they are, each on a connection of its own,
// and clients that keep a number of requests in flight. They speak MDP/0.1. Each reply
// must be the one to a request in flight; a wrong one, or one that does not come, makes
// the measurement fail.
package majordomo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/internal/hooks"
	"clustermap/patterns/majordomo"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// spec is one measurement.
type spec struct {
	Endpoint string
	Workers  int
	Clients  int           // connections of clients
	Window   int           // requests of each client in flight
	Size     int           // bytes of a body, at least 8
	Warm     time.Duration // before anything is counted
	Time     time.Duration
}

// figure is the result of one.
type figure struct {
	Requests  int64
	Elapsed   time.Duration
	Processor time.Duration // of the broker's process, from its start to its end; not filled in by Load
}

const service = "echo"

// patience is how long a client waits for some reply before the measurement fails.
const patience = 20 * time.Second

// load measures the broker at s.Endpoint.
func load(ctx context.Context, s spec) (figure, error) {
	w, err := majordomo.NewWorker(service, func(_ context.Context, request [][]byte) ([][]byte, error) {
		return request, nil
	}, majordomo.WorkerOptions{Broker: s.Endpoint, Concurrency: s.Workers})
	if err != nil {
		return figure{}, err
	}
	defer w.Close()
	for w.Stats().Connected < s.Workers {
		select {
		case <-ctx.Done():
			return figure{}, errors.New("not all workers have registered")
		case <-time.After(10 * time.Millisecond):
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	for range s.Clients {
		all.Go(func() {
			if err := client(ctx, s, &done); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	time.Sleep(s.Warm)
	before, began := done.Load(), time.Now()
	select {
	case <-time.After(s.Time):
	case <-ctx.Done():
		return figure{}, context.Cause(ctx)
	}
	return figure{Requests: done.Load() - before, Elapsed: time.Since(began)}, nil
}

// client keeps s.Window requests in flight.
func client(ctx context.Context, s spec, done *atomic.Int64) error {
	d, err := sockets.NewDealer(sockets.Options{Linger: sockets.LingerNone, RecvTimeout: patience})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Connect(s.Endpoint); err != nil {
		return err
	}
	// A body is the number of a place among the requests in flight, how often the place
	// was used, and filling.
	used := make([]uint32, s.Window)
	head := zmtp.AppendMessage(nil, nil, []byte("MDPC01"), []byte(service), nil)
	head = head[:len(head)-2] // without the body
	body := make([]byte, s.Size)
	var wire []byte
	add := func(place int) {
		used[place]++
		binary.LittleEndian.PutUint32(body, uint32(place))
		binary.LittleEndian.PutUint32(body[4:], used[place])
		wire = zmtp.AppendFrame(append(wire, head...), body, false)
	}
	for place := range used {
		add(place)
	}
	if err := hooks.SendWire(ctx, d, wire, s.Window, nil); err != nil {
		return err
	}
	var batch sockets.Batch
	defer batch.Release()
	for {
		if err := d.RecvBatch(ctx, &batch); err != nil {
			return fmt.Errorf("no reply: %w", err)
		}
		wire = wire[:0]
		for i := range batch.Len() {
			m := batch.Message(i)
			var last []byte
			frames := 0
			for rest := m; len(rest) > 0; frames++ {
				last, rest = rest.Next()
			}
			if frames != 4 || len(last) != s.Size {
				return fmt.Errorf("not a reply: %q", m)
			}
			place := int(binary.LittleEndian.Uint32(last))
			if place >= s.Window || binary.LittleEndian.Uint32(last[4:]) != used[place] {
				return fmt.Errorf("a reply to no request on its way: %q", m)
			}
			add(place)
		}
		done.Add(int64(batch.Len()))
		if err := hooks.SendWire(ctx, d, wire, batch.Len(), nil); err != nil {
			return err
		}
	}
}
