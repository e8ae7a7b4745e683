package recipes

import (
	"context"
	"time"

	"clustermap/chp"
)

// source is what a queue needs of a map. Tests have another one.
type source interface {
	// ready waits until there is a server.
	ready(ctx context.Context) error
	// grant returns a new lease.
	grant(ctx context.Context, ttl time.Duration) (lease, error)
	// create sets a new key, which ends with a lease, and returns the sequence.
	create(ctx context.Context, key string, value []byte, with lease) (ticket int64, err error)
	// remove deletes a key, if it exists.
	remove(ctx context.Context, key string) error
	// watch reports all keys, and their changes.
	watch() (feed, error)
}

// lease is a [chp.Lease].
type lease interface {
	Deadline() time.Time
	Done() <-chan struct{}
	Err() error
	Close() error
	Revoke(ctx context.Context) error
}

// feed is a [chp.Watch].
type feed interface {
	NextBatch(ctx context.Context, f func(chp.Event) bool) error
	Close() error
}

// clientSource is a source that is a subtree of a client's map.
type clientSource struct {
	c    *chp.Client
	root string
}

func (s *clientSource) ready(ctx context.Context) error { return s.c.WaitActive(ctx) }

func (s *clientSource) grant(ctx context.Context, ttl time.Duration) (lease, error) {
	l, err := s.c.Grant(ctx, ttl)
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return l, nil
}

func (s *clientSource) create(ctx context.Context, key string, value []byte, with lease) (int64, error) {
	return s.c.SetIf(ctx, key, value, chp.IfAbsent(), chp.WithLease(with.(*chp.Lease)))
}

func (s *clientSource) remove(ctx context.Context, key string) error {
	_, err := s.c.DeleteIf(ctx, key)
	return err
}

func (s *clientSource) watch() (feed, error) {
	w, err := s.c.Watch(s.root)
	if err != nil {
		return nil, err
	}
	return w, nil
}
