package lastvalue

import (
	"fmt"
	"sync"
	"testing"
)

// TestCloseInFlood: Close waits for the current batch, but not until the publishers pause.
func TestCloseInFlood(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	c := r.cache
	received := func() (in uint64, pending int) {
		for _, p := range c.Publishers() {
			in, pending = in+p.MessagesIn, pending+p.PendingMessages
		}
		return in, pending
	}
	c.mu.Lock() // so that forward blocks at the first batch
	unlock := sync.OnceFunc(c.mu.Unlock)
	defer unlock()
	r.publish("first")
	eventually(t, "the first message is in hand", func() bool {
		in, pending := received()
		return in == 1 && pending == 0
	})
	for range 100 {
		r.publish("more")
	}
	eventually(t, "more messages wait", func() bool {
		_, pending := received()
		return pending > 0
	})
	c.cancel()
	unlock()
	must(t, c.Close())
	if n := c.Stats().Messages; n > 1 {
		t.Errorf("%d messages were taken after the end", n-1)
	}
}

// joining returns a joiner without a connection.
func joining(c *Cache) *joiner { return &joiner{cache: c, of: map[string]*want{}} }

// TestManyPrefixes: any number of prefixes without topics does not hold the lock for long.
func TestManyPrefixes(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	c := r.cache
	r.publish("topic")
	r.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	j := joining(c)
	for n := range 3 * chunkTopics {
		j.want(fmt.Sprint("none", n), c.values.updates)
	}
	j.want("t", c.values.updates)
	for turns := 0; ; turns++ {
		before := j.wants.Len()
		messages := c.fill(j)
		if looked := before - j.wants.Len(); looked > chunkTopics || looked == 0 {
			t.Fatalf("%d prefixes were looked at in one turn", looked)
		}
		if messages > 0 {
			if turns != 3 || messages != 1 {
				t.Errorf("%d messages in turn %d", messages, turns)
			}
			break
		}
	}
	if c.fill(j) != 0 || j.wants.Len() != 0 {
		t.Errorf("%d prefixes are left", j.wants.Len())
	}
}

// TestReplayedToNobody: last values that could not be sent do not count.
func TestReplayedToNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	c := r.cache
	r.publish("topic")
	r.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	j := joining(c)
	c.joiners[nil] = j
	j.want("", c.values.updates)
	c.advance(j)
	if len(c.joiners) != 0 || c.stats.Replayed != 0 {
		t.Errorf("%d join, %d values count as sent", len(c.joiners), c.stats.Replayed)
	}
}
