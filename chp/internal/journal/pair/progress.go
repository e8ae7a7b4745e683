package pair

import "math"

// Progress says how far the other server is.
type Progress uint8

const (
	// ProgressProbe: it has said what it has, which the tail continues, and is sent what follows;
	// it has not answered that.
	ProgressProbe Progress = iota
	// ProgressCopy: it is sent the whole map, or will be, and has not acknowledged it.
	ProgressCopy
	// ProgressTail: it has the map, and is sent batches as they come. Updates may wait for it.
	ProgressTail
	// ProgressLeft: it has announced its end. Updates must not wait for it.
	ProgressLeft
	// ProgressLost: its connection has ended, or is about to. It may come back.
	ProgressLost
)

func (p Progress) String() string {
	return [...]string{"probe", "copy", "tail", "left", "lost"}[p]
}

// MarshalText returns the result of String.
func (p Progress) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Follower is one connection of the other server, which follows. A new one replaces it.
//
//	Have <= Sent, and both never fall, except that a copy of the map sets Sent
//	Progress is Tail only if Have has reached the last map that was sent
//	Idle rises only at a look at which it lacks something, or is not live
type Follower struct {
	Progress Progress
	Sent     int64 // all updates up to this sequence were sent
	Have     int64 // all up to this one were acknowledged; -1 before the first acknowledgement
	Idle     int   // looks since the other server has acknowledged more, or had all

	position uint64 // in the tail, of the next batch to send
	base     int64  // sequence of the map that was sent last, 0 if none was; see NeedsMap
	behind   int    // looks since it is in Tail while updates do not wait for it
}

// Live reports whether the follower is connected, and has not announced its end.
func (f *Follower) Live() bool { return f.Progress <= ProgressTail }

// HasMap reports whether it has acknowledged the last map that it was sent, or what it had
// itself.
func (f *Follower) HasMap() bool { return f.Have >= f.base }

// NeedsMap reports whether it is to be sent the whole map, which has not begun.
func (f *Follower) NeedsMap() bool { return f.Progress == ProgressCopy && f.base == math.MaxInt64 }

// needsMap makes it need the map, if it is live.
func (f *Follower) needsMap() {
	if f.Live() {
		f.Progress, f.base = ProgressCopy, math.MaxInt64
	}
}
