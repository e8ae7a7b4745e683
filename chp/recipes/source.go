package recipes

import (
	"context"
	"errors"
	"strconv"
	"time"

	"clustermap/chp"
)

// source is what a queue needs of a map. Tests have another one.
type source interface {
	// ready waits until there is a server.
	ready(ctx context.Context) error
	// create sets a new key, which expires after ttl, and returns the sequence.
	create(ctx context.Context, key string, value []byte, ttl time.Duration) (ticket int64, err error)
	// renew sets a key again that has a ticket. The error is errGone if it does not exist.
	renew(ctx context.Context, key string, value []byte, ttl time.Duration, ticket int64) error
	// remove deletes a key, if it exists.
	remove(ctx context.Context, key string) error
	// watch reports all keys, and their changes.
	watch() (feed, error)
}

// feed is a [chp.Watch].
type feed interface {
	NextBatch(ctx context.Context, f func(chp.Event) bool) error
	Close() error
}

var errGone = errors.New("chp/recipes: the key is gone")

// propertyTicket has the ticket of a key that was renewed. Before, it is the key's sequence.
const propertyTicket = "ticket"

// ticketOf returns the ticket of a key that was set.
func ticketOf(e *chp.Event) int64 {
	if text, ok := e.Properties.Get(propertyTicket); ok {
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return n
		}
	}
	return e.Sequence
}

// clientSource is a source that is a subtree of a client's map.
type clientSource struct {
	c    *chp.Client
	root string
}

func (s *clientSource) ready(ctx context.Context) error { return s.c.WaitActive(ctx) }

func (s *clientSource) create(ctx context.Context, key string, value []byte, ttl time.Duration) (int64, error) {
	return s.c.SetIf(ctx, key, value, chp.IfAbsent(), chp.WithTTL(ttl))
}

func (s *clientSource) renew(ctx context.Context, key string, value []byte, ttl time.Duration, ticket int64) error {
	_, err := s.c.SetIf(ctx, key, value, chp.IfPresent(), chp.WithTTL(ttl), chp.WithProperty(propertyTicket, strconv.FormatInt(ticket, 10)))
	if conflict := (*chp.ConflictError)(nil); errors.As(err, &conflict) {
		return errGone
	}
	return err
}

func (s *clientSource) remove(ctx context.Context, key string) error {
	_, err := s.c.DeleteIf(ctx, key)
	return err
}

func (s *clientSource) watch() (feed, error) {
	w, err := s.c.Watch(s.root)
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return w, nil
}
