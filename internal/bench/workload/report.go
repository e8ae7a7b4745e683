package workload

import (
	"errors"
	"fmt"
)

// Report is the report of a replica.
type Report struct {
	Delivered  uint64  `json:"delivered"` // measured updates, each time one came
	Lost       uint64  `json:"lost"`
	Doubled    uint64  `json:"doubled"`
	OutOfOrder uint64  `json:"out_of_order"`
	Foreign    uint64  `json:"foreign"` // values that no publisher sent
	Last       int64   `json:"last"`    // when the last update arrived, by Now
	Content    Content `json:"content"`
	Latency    Sparse  `json:"latency"`
}

// Fault returns why a replica did not receive the workload as it was sent, or nil.
// expected is the content that it was to end with.
func (r *Report) Fault(s Spec, expected Content) error {
	var list []error
	for _, f := range []struct {
		n    uint64
		text string
	}{
		{r.Lost, "updates were lost"},
		{r.Doubled, "updates came twice"},
		{r.OutOfOrder, "updates came out of order"},
		{r.Foreign, "values were not as sent"},
	} {
		if f.n > 0 {
			list = append(list, fmt.Errorf("%d %s", f.n, f.text))
		}
	}
	if r.Content != expected {
		list = append(list, errors.New("the replica did not end with the content that was sent"))
	}
	if list == nil && !s.Conflates && r.Delivered != uint64(s.Updates) {
		list = append(list, errors.New("the counts do not add up"))
	}
	return errors.Join(list...)
}

// Checker checks every update that a replica receives, in order.
type Checker struct {
	spec    Spec
	sources []source // by publisher
	cold    int      // publishers whose warm-up has not arrived; keys, if the system conflates
	missing int      // publishers whose last update has not arrived; keys, if the system conflates
	report  Report
	latency Histogram

	keys []conflated // of a system that conflates, by number
}

// source is what came from a publisher.
type source struct {
	tracker tracker // if the system does not conflate
	warmed  uint64  // counters up to here are not measured
	total   uint64  // the last counter
}

// conflated is a key of which not every value arrives.
type conflated struct{ latest, final uint64 }

// NewChecker returns a checker for the workload.
func NewChecker(s Spec) *Checker {
	c := &Checker{spec: s, sources: make([]source, s.Publishers)}
	for p := range s.Publishers {
		c.sources[p] = source{warmed: uint64(s.Warmed(p)), total: uint64(s.Warmed(p) + s.Measured(p))}
	}
	if !s.Conflates {
		for p := range s.Publishers {
			c.cold += min(s.Warmed(p), 1)
			c.missing += min(s.Warmed(p)+s.Measured(p), 1)
		}
		return c
	}
	c.cold, c.missing, c.keys = s.Keys, s.Keys, make([]conflated, s.Keys)
	for p := range s.Publishers {
		for i, final := range s.finals(p) {
			c.keys[p+i*s.Publishers].final = final
		}
	}
	return c
}

// See checks an update that arrived at the time now.
func (c *Checker) See(key, value []byte, now int64) {
	publisher, counter, sent, ok := c.spec.parse(value)
	if !ok {
		c.report.Foreign++
		return
	}
	from := &c.sources[publisher]
	if c.keys != nil {
		ok = c.latest(key, counter)
	} else {
		from.tracker.see(counter)
		if counter == from.total {
			c.missing--
		}
	}
	if counter <= from.warmed {
		if counter == from.warmed && c.keys == nil {
			c.cold--
		}
		return
	}
	if !ok {
		return
	}
	c.report.Delivered++
	c.report.Last = now
	c.latency.Add(now-sent, 1)
}

// latest takes a value of a key of which not every value arrives, and reports whether it
// is newer than the one before.
func (c *Checker) latest(key []byte, counter uint64) bool {
	i := c.spec.number(key)
	if i < 0 {
		c.report.Foreign++
		return false
	}
	k := &c.keys[i]
	if counter < k.latest {
		c.report.OutOfOrder++
	}
	if counter <= k.latest {
		return false // fetched once more
	}
	if k.latest == 0 {
		c.cold--
	}
	if k.latest = counter; counter == k.final {
		c.missing--
	}
	return true
}

// Delivered returns how many measured updates have arrived.
func (c *Checker) Delivered() uint64 { return c.report.Delivered }

// Warm reports whether all of the warm-up has arrived.
func (c *Checker) Warm() bool { return c.cold <= 0 }

// Done reports whether the last update of every publisher has arrived, or of every key if
// the system conflates. The last of a publisher comes after all others, except for those
// that are lost or out of order.
func (c *Checker) Done() bool { return c.missing <= 0 }

// Report returns the report; content is the fingerprint of the replica's map.
func (c *Checker) Report(content Content) Report {
	r := c.report
	if c.keys == nil {
		for i := range c.sources {
			from := &c.sources[i]
			r.Lost += from.tracker.lost(from.total)
			r.Doubled += from.tracker.doubled
			r.OutOfOrder += from.tracker.outOfOrder
		}
	}
	for _, k := range c.keys {
		if k.latest < k.final {
			r.Lost++
		}
	}
	r.Content = content
	r.Latency = c.latency.Sparse()
	return r
}
