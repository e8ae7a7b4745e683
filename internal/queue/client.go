package queue

import (
	"iter"
	"sync"

	"clustermap/internal/fifo"
)

// Client stands for whoever is behind some queues of an inbox: a key, a user, or an
// address. Clients are served in turn, and the queues of one client in turn within it, so
// a client does not get more by making more connections. Inbox.mu guards it.
type Client struct {
	key    string // in Inbox.clients
	queues int    // that have joined, and have a peer or messages
	ready  lane   // in Inbox.ready
	held   lane   // in total.held
}

// lane is the queues of one client in a ring of turns.
type lane struct{ queues fifo.Queue[*Inqueue] }

// turns is a ring of the clients that have queues in it, and their queues.
type turns struct {
	lanes fifo.Queue[*lane]
	count int // of queues
}

func (t *turns) push(l *lane, q *Inqueue) {
	if l.queues.Len() == 0 {
		t.lanes.Push(l)
	}
	l.queues.Push(q)
	t.count++
}

// front returns the queue whose turn it is; there must be one.
func (t *turns) front() *Inqueue { return t.lanes.Front().queues.Front() }

// pop removes the queue whose turn it is. The next turn is that of another client.
func (t *turns) pop() *Inqueue {
	l := t.lanes.Pop()
	q := l.queues.Pop()
	if l.queues.Len() > 0 {
		t.lanes.Push(l)
	}
	t.count--
	return q
}

// next ends the turn of the queue at the front.
func (t *turns) next() {
	if t.count == 1 {
		return
	}
	l := t.lanes.Pop()
	l.queues.Push(l.queues.Pop())
	t.lanes.Push(l)
}

// remove removes a queue that is in l.
func (t *turns) remove(l *lane, q *Inqueue) {
	remove(&l.queues, q)
	if l.queues.Len() == 0 {
		remove(&t.lanes, l)
	}
	t.count--
}

// remove removes one item, and leaves the others in their order.
func remove[T comparable](r *fifo.Queue[T], v T) {
	for range r.Len() {
		if other := r.Pop(); other != v {
			r.Push(other)
		}
	}
}

// clients are those that have joined, by their keys. Inbox.mu guards them.
type clients map[string]*Client

// Join says which client a queue belongs to, before the queue is used. A queue that does
// not join is a client of its own.
func (in *Inbox) Join(q *Inqueue, key string) {
	in.lock()
	defer in.mu.Unlock()
	c := in.clients[key]
	if c == nil {
		c = &Client{key: key}
		if in.clients == nil {
			in.clients = clients{}
		}
		in.clients[key] = c
	}
	c.queues++
	q.client, q.joined = c, true
}

// Client returns the client of a queue. It does not change after Join.
func (q *Inqueue) Client() *Client { return q.client }

// part forgets a client when none of its queues has a peer or messages.
func (c clients) part(q *Inqueue) {
	if !q.joined {
		return
	}
	q.joined = false
	if q.client.queues--; q.client.queues == 0 {
		delete(c, q.client.key)
	}
}

// total bounds what all queues of an inbox together hold; their high-water marks are those of
// one peer. At it, readers wait, and are let in one batch each, in turn, as the application
// takes messages. Whole messages only are queued, so there is always one to take. A reader
// that was let in has its batch counted at once, so the total is exceeded by one batch at
// most. Inbox.mu guards it.
type total struct {
	most int
	used int   // bytes in all queues, and of the readers that were let in
	held turns // queues whose readers wait
}

// admit waits until all queues together take a batch that costs so much. It returns
// false if done or gone was closed first, or the queue cut. mu must be held, and is
// released meanwhile.
func (t *total) admit(q *Inqueue, cost int, mu sync.Locker, gone, done <-chan struct{}) bool {
	if t.used < t.most && t.held.count == 0 {
		return true
	}
	q.awaits, q.held = cost, true
	t.held.push(&q.client.held, q)
	t.release()
	for q.held {
		if q.state == inCut || q.room.Sleep(mu, gone, done, nil) != nil {
			if q.held {
				q.held = false
				t.held.remove(&q.client.held, q)
			} else {
				t.used -= q.awaits
			}
			t.release() // the turn is another's
			return false
		}
	}
	t.used -= q.awaits    // the caller puts it, and counts it again
	if q.state == inCut { // since it was let in
		t.release()
		return false
	}
	return true
}

// release lets readers in while the total allows it.
func (t *total) release() {
	for t.held.count > 0 && t.used < t.most {
		q := t.held.pop()
		q.held = false
		t.used += q.awaits
		q.room.Wake()
	}
}

// Heaviest returns the holder that holds most, of the client that holds most: so who holds
// less than its share of a bound is not the one that gives way, whether the others have
// many connections or large ones. It returns the zero H if nothing is held.
func Heaviest[H any](holders iter.Seq[H], held func(H) (*Client, int)) (worst H) {
	sums := map[*Client]int{}
	for h := range holders {
		c, bytes := held(h)
		sums[c] += bytes
	}
	sum, most := 0, 0
	for h := range holders {
		if c, bytes := held(h); bytes > 0 && (sums[c] > sum || sums[c] == sum && bytes > most) {
			worst, sum, most = h, sums[c], bytes
		}
	}
	return worst
}
