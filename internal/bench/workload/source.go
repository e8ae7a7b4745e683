package workload

// StampInterval is the number of updates that share one reading of the clock. It can add
// a few microseconds to a latency, and never makes one smaller.
const StampInterval = 64

// fetchAhead is the number of keys that a source reads at a time.
const fetchAhead = 32

// Source yields the updates of one publisher: the warm-up and then the measured ones.
type Source struct {
	keys    []string
	order   Order
	payload *Payload
	counter uint64
	sent    int64

	ahead   [fetchAhead]string // the next keys, from counter % fetchAhead on
	fetched byte
}

// NewSource returns the updates of publisher p.
func NewSource(s Spec, p int) *Source {
	keys := s.KeysOf(p)
	return &Source{keys: keys, order: s.order(p), payload: newPayload(s, p)}
}

// Next returns the next update. The value is lent until the next call.
func (s *Source) Next() (key string, value []byte) {
	if s.counter%StampInterval == 0 {
		s.Stamp()
	}
	i := s.counter % fetchAhead
	if i == 0 {
		s.fetch()
	}
	s.counter++
	return s.ahead[i], s.payload.fill(s.counter, s.sent)
}

// fetch chooses the next keys and reads them, so that they are in the cache when they
// are used. With a million keys each is a miss, which would count as time of the
// pipeline; here the processor waits for all of them together.
func (s *Source) fetch() {
	for i := range s.ahead {
		s.ahead[i] = s.keys[s.order.next()]
	}
	for _, key := range s.ahead {
		s.fetched += key[0] + key[len(key)-1]
	}
}

// Stamp reads the clock. The updates that follow carry this time.
func (s *Source) Stamp() { s.sent = Now() }

// Keys returns every key of the publisher.
func (s *Source) Keys() []string { return s.keys }
