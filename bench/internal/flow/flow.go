// Package flow passes messages through a forwarder between publishers and subscribers,
// for benchmarks of it.
package flow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clustermap/sockets"
)

// Flow is a publisher on one side of a forwarder, and a subscriber to everything on the
// other side. Neither drops a message.
type Flow struct {
	pub      *sockets.Pub
	sub      *sockets.Sub
	messages [][][]byte // sent in turn
	batch    sockets.Batch
}

// New connects a publisher of messages of size bytes to frontend and a subscriber to
// backend, and waits until the subscription has got through.
func New(ctx context.Context, size int, frontend, backend string) (*Flow, error) {
	return open(ctx, [][][]byte{{make([]byte, size)}}, frontend, backend)
}

// NewTopics is New for messages of two frames, a topic of five digits and size bytes, the
// topics in turn. The forwarder may be a cache, which has subscribed before the
// subscriber has: so NewTopics sends messages until one arrives.
func NewTopics(ctx context.Context, topics, size int, frontend, backend string) (*Flow, error) {
	messages := make([][][]byte, topics)
	for i := range messages {
		messages[i] = [][]byte{fmt.Appendf(nil, "%05d", i), make([]byte, size)}
	}
	f, err := open(ctx, messages, frontend, backend)
	if err == nil {
		err = f.begin(ctx)
	}
	return f, err
}

// begin sends messages until one arrives, and receives all of them.
func (f *Flow) begin(ctx context.Context) error {
	wait := func() (sockets.Message, error) {
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		return f.sub.Recv(short)
	}
	probe, end := f.messages[0], [][]byte{f.messages[0][0], []byte("end")}
	for {
		if err := f.pub.Send(ctx, probe...); err != nil {
			return err
		}
		if _, err := wait(); err == nil {
			break
		} else if ctx.Err() != nil {
			return err
		}
	}
	if err := f.pub.Send(ctx, end...); err != nil {
		return err
	}
	for {
		if m, err := f.sub.Recv(ctx); err != nil || string(m[1]) == "end" {
			return err
		}
	}
}

func open(ctx context.Context, messages [][][]byte, frontend, backend string) (*Flow, error) {
	o := sockets.Options{FullPolicy: sockets.PolicyBlock, Linger: sockets.LingerNone}
	f := &Flow{messages: messages}
	var err error
	if f.pub, err = sockets.NewPub(o); err != nil {
		return nil, err
	}
	if f.sub, err = sockets.NewSub(sockets.Options{Linger: sockets.LingerNone}); err != nil {
		return nil, err
	}
	err = errors.Join(f.sub.Subscribe(""), f.sub.Connect(backend), f.pub.Connect(frontend))
	if err == nil {
		err = f.pub.WaitSubscribers(ctx, "", 1)
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
		for i := range n {
			if err := f.pub.Send(ctx, f.messages[i%len(f.messages)]...); err != nil {
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
