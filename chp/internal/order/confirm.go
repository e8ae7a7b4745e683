package order

// Confirm calls f with the sequence of the last update that is published, if the server may
// say now that it has all that is: it is active, and neither hands over nor may be cut off from
// everybody. Nothing is published during the call; f must not wait. Otherwise it returns a
// channel that is closed when the caller should ask again, or nil if the server is passive. A server
// of a cluster always may: its caller has asked a majority.
func (q *Sequencer) Confirm(f func(last int64)) (confirmed bool, again <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.o.Cluster: // the caller has asked the others
	case q.passive:
		return false, nil
	case q.halted != (halted{}):
		return false, q.more()
	}
	f(q.state.Last())
	return true, nil
}
