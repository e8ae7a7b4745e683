package freelance

// queue is a FIFO queue of the requests that wait for a handler. The ring grows with
// them; a large one is freed when it is empty.
type queue struct {
	ring  []request
	head  int // index of the first request
	size  int
	bytes int // of their messages
}

// keepRing is the largest ring that an empty queue keeps.
const keepRing = 1024

func (q *queue) len() int { return q.size }

// first returns the request that has waited longest.
func (q *queue) first() *request { return &q.ring[q.head] }

func (q *queue) push(r request) {
	if q.size == len(q.ring) {
		larger := make([]request, max(16, 2*len(q.ring)))
		n := copy(larger, q.ring[q.head:])
		copy(larger[n:], q.ring[:q.head])
		q.ring, q.head = larger, 0
	}
	q.ring[(q.head+q.size)%len(q.ring)] = r
	q.size++
	q.bytes += r.bytes
}

func (q *queue) pop() request {
	r := q.ring[q.head]
	q.ring[q.head] = request{}
	q.head = (q.head + 1) % len(q.ring)
	q.size--
	q.bytes -= r.bytes
	if q.size == 0 && len(q.ring) > keepRing {
		*q = queue{}
	}
	return r
}

func (q *queue) clear() { *q = queue{} }
