package workload

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

// Checker checks every update that a replica receives, in order.
type Checker struct {
	spec     Spec
	trackers []Tracker
	warmed   []uint64 // by publisher: counters up to here are not measured
	report   Report
	latency  Histogram
}

// NewChecker returns a checker for the workload.
func NewChecker(s Spec) *Checker {
	c := &Checker{spec: s, trackers: make([]Tracker, s.Publishers), warmed: make([]uint64, s.Publishers)}
	for p := range c.warmed {
		c.warmed[p] = uint64(s.Warmed(p))
	}
	return c
}

// See checks the value of an update that arrived at the time now.
func (c *Checker) See(value []byte, now int64) {
	publisher, counter, sent, ok := c.spec.Parse(value)
	if !ok {
		c.report.Foreign++
		return
	}
	c.trackers[publisher].See(counter)
	if counter <= c.warmed[publisher] {
		return
	}
	c.report.Delivered++
	c.report.Last = now
	c.latency.Add(now-sent, 1)
}

// Delivered returns how many measured updates have arrived.
func (c *Checker) Delivered() uint64 { return c.report.Delivered }

// Report returns the report; content is the fingerprint of the replica's map.
func (c *Checker) Report(content Content) Report {
	r := c.report
	for p := range c.trackers {
		t := &c.trackers[p]
		r.Lost += t.Lost(uint64(c.spec.Warmed(p) + c.spec.Measured(p)))
		r.Doubled += t.Doubled
		r.OutOfOrder += t.OutOfOrder
	}
	r.Content = content
	r.Latency = c.latency.Sparse()
	return r
}
