package workload

// StampInterval is how many updates share one look at the clock. What waits for
// its 63 successors shows up as latency of a few microseconds, which is honest:
// it is never less than the truth.
const StampInterval = 64

// Source yields the updates of one publisher: the warm-up, and on to the
// measured ones.
type Source struct {
	keys    []string
	order   Order
	payload *Payload
	counter uint64
	sent    int64
}

// NewSource returns the updates of publisher p.
func NewSource(s Spec, p int) *Source {
	keys := s.KeysOf(p)
	return &Source{keys: keys, order: NewOrder(p, len(keys)), payload: NewPayload(s, p)}
}

// Next returns the next update. The value is lent until the next call.
func (s *Source) Next() (key string, value []byte) {
	if s.counter%StampInterval == 0 {
		s.Stamp()
	}
	s.counter++
	return s.keys[s.order.Next()], s.payload.Fill(s.counter, s.sent)
}

// Stamp looks at the clock now: the updates that follow carry this time.
func (s *Source) Stamp() { s.sent = Now() }

// Keys returns every key of the publisher.
func (s *Source) Keys() []string { return s.keys }
