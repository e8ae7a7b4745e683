// Package flow passes messages through whatever forwards between publishers and
// subscribers, for benchmarks of it.
package flow

import (
	"context"
	"errors"

	"clustermap/sockets"
)

// Flow is a publisher on one side of what forwards, and a subscriber to everything on
// the other side. Neither drops a message.
type Flow struct {
	pub     *sockets.Pub
	sub     *sockets.Sub
	message []byte
	batch   sockets.Batch
}

// New connects a publisher of messages of size bytes to frontend and a subscriber to
// backend, and waits until the subscription has got through.
func New(ctx context.Context, size int, frontend, backend string) (*Flow, error) {
	o := sockets.Options{FullPolicy: sockets.Block, Linger: -1}
	f := &Flow{message: make([]byte, size)}
	var err error
	if f.pub, err = sockets.NewPub(o); err != nil {
		return nil, err
	}
	if f.sub, err = sockets.NewSub(o); err != nil {
		return nil, err
	}
	err = errors.Join(f.sub.Subscribe(""), f.sub.Connect(backend), f.pub.Connect(frontend))
	if err == nil {
		err = f.pub.WaitSubscribers(ctx, nil, 1)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Pass sends n messages and waits until all have arrived.
func (f *Flow) Pass(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		for range n {
			if err := f.pub.Send(ctx, f.message); err != nil {
				cancel()
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for got := 0; got < n; got += f.batch.Len() {
		if err := f.sub.RecvBatch(ctx, &f.batch); err != nil {
			cancel()
			return errors.Join(err, <-sent)
		}
	}
	f.batch.Release()
	return <-sent
}

// Close closes both sockets.
func (f *Flow) Close() error { return errors.Join(f.pub.Close(), f.sub.Close()) }
