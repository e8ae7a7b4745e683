package fanout

import (
	"slices"

	"clustermap/internal/queue"
)

// Subscriber is one connection of a publisher: its topics and its queue. The publisher's
// mutex guards it.
type Subscriber struct {
	out *queue.Outbox // does not change

	link   Link          // the connection; nil when it has ended
	client *queue.Client // who is behind it

	group *group // the group of peers with the same topics; nil when they were removed
	alone bool   // never follows a log
	apart int    // index in group.apart plus 1, or 0 if it is not there
	// evicted means that the connection was ended because the peer was too
	// slow. Nothing more is queued for it, and its queue no longer counts.
	evicted bool
	reading reading
	room    queue.HWM // known room in the peer's queue; see hasRoomFor
	bytes   int       // what the peer's topics occupy
	// refused means that the connection was ended because of that. The topics no longer
	// count.
	refused bool

	// With Manual, the topics that the peer has subscribed to, applied or not.
	asked      map[string]struct{}
	askedBytes int
}

// Link is the connection of a subscriber. Its methods are called with the publisher's mutex
// held, and do not wait.
type Link interface {
	// Disconnect ends the connection. Nothing may be queued for it from then on, if the
	// peer could still receive it.
	Disconnect(reason error)
	// Taken returns how many queued bytes the operating system, or over inproc the
	// other socket, has taken from the connection.
	Taken() int64
}

// Attach enters a connection without subscriptions, whose messages are queued in out. If it
// is alone, it gets each message by itself.
func (p *Publisher) Attach(link Link, out *queue.Outbox, client *queue.Client, alone bool) *Subscriber {
	q := &Subscriber{out: out, link: link, client: client, alone: alone}
	p.Lock()
	defer p.Unlock()
	out.Of = q
	if p.peers == nil {
		p.peers = map[*Subscriber]struct{}{}
	}
	p.peers[q] = struct{}{}
	p.regroup(q, p.groupOf(nil, 0))
	if p.invert {
		p.changed.WakeAll()
	}
	return q
}

// Topics returns some topics of a peer, at most most and sorted, and how many it has, all without
// one.
func (p *Publisher) Topics(q *Subscriber, without string, most int) (some []string, all int) {
	p.Lock()
	defer p.Unlock()
	if q == nil || q.group == nil {
		return nil, 0
	}
	all = len(q.group.topics)
	if _, has := q.group.topics[without]; has {
		all--
	}
	for topic := range q.group.topics {
		if len(some) == most {
			break
		}
		if topic != without {
			some = append(some, topic)
		}
	}
	slices.Sort(some)
	return some, all
}

// subscriberOf returns the subscriber of an outbox.
func subscriberOf(o *queue.Outbox) *Subscriber { return o.Of.(*Subscriber) }

// hasRoomFor reports whether the peer has room for a message of the given size,
// and reserves it. Only publishing fills the queues of a publisher, and the
// mutex is held: so room that was found once need not be checked again until it is used up.
func (q *Subscriber) hasRoomFor(bytes int) bool {
	room := &q.room
	if room.Messages <= 0 || room.Bytes <= 0 {
		if *room = q.out.Left(); room.Messages <= 0 || room.Bytes <= 0 {
			return false
		}
	}
	room.Messages--
	room.Bytes -= bytes
	return true
}
