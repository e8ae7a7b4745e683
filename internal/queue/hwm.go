package queue

// HWM is a number of messages and their bytes: a high-water mark, or a size to compare
// with one.
type HWM struct{ Messages, Bytes int }

// Unbounded stands for "no limit" in counts and sizes. It is small enough that two of
// them can be added.
const Unbounded = (1<<30 - 1) << (^uint(0) >> 63 * 30)

// Low returns the mark below which a queue that was full takes messages again.
func (h HWM) Low() HWM { return HWM{(h.Messages + 1) / 2, (h.Bytes + 1) / 2} }

// plus returns the high-water mark of two queues that are one.
func (h HWM) plus(g HWM) HWM {
	return HWM{min(h.Messages+g.Messages, Unbounded), min(h.Bytes+g.Bytes, Unbounded)}
}

// Minus returns the difference.
func (h HWM) Minus(g HWM) HWM { return HWM{h.Messages - g.Messages, h.Bytes - g.Bytes} }
