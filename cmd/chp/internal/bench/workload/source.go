package workload

// StampInterval is the number of updates that share one reading of the clock. It can add
// a few microseconds to a latency, and never makes one smaller.
const StampInterval = 64

// Source yields the updates of one publisher: the warm-up and then the measured ones.
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

// Stamp reads the clock. The updates that follow carry this time.
func (s *Source) Stamp() { s.sent = Now() }

// Keys returns every key of the publisher.
func (s *Source) Keys() []string { return s.keys }
