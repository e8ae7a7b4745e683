package chp

import (
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"sync/atomic"

	"clustermap/internal/kvmsg"
)

// refusals counts refused messages by reason.
type refusals [kvmsg.ReasonCount]atomic.Uint64

func (r *refusals) add(err error) {
	var message *MessageError
	if errors.As(err, &message) {
		r[message.Reason].Add(1)
	}
}

// counts returns the counters that are not zero.
func (r *refusals) counts() map[Reason]uint64 {
	m := map[Reason]uint64{}
	for reason, n := range r.load() {
		if n > 0 {
			m[Reason(reason)] = n
		}
	}
	return m
}

// load returns the counters.
func (r *refusals) load() (c RefusalCounts) {
	for i := range r {
		c[i] = r[i].Load()
	}
	return c
}

// RefusalCounts holds the numbers of refused messages; the index is the [Reason]. In JSON
// it is an object with the numbers that are not 0, whose names are those of
// [Reason.String] in lower case and with underscores, such as value_too_large.
type RefusalCounts [kvmsg.ReasonCount]uint64

// Total returns the sum of the counters.
func (c RefusalCounts) Total() (n uint64) {
	for _, k := range c {
		n += k
	}
	return n
}

// All returns all counters with their names in JSON, also those that are 0.
func (c RefusalCounts) All() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for reason, n := range c {
			if !yield(reasonField(Reason(reason)), n) {
				return
			}
		}
	}
}

// MarshalJSON implements json.Marshaler.
func (c RefusalCounts) MarshalJSON() ([]byte, error) {
	m := map[string]uint64{}
	for reason, n := range c.All() {
		if n > 0 {
			m[reason] = n
		}
	}
	return json.Marshal(m)
}

// UnmarshalJSON implements json.Unmarshaler. It ignores reasons that it does not know,
// because a server of a later version may have more.
func (c *RefusalCounts) UnmarshalJSON(text []byte) error {
	var m map[string]uint64
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	for reason := range c {
		c[reason] = m[reasonField(Reason(reason))]
	}
	return nil
}

// reasonField returns the name of a reason's counter in JSON.
func reasonField(r Reason) string {
	return strings.ToLower(strings.ReplaceAll(r.String(), " ", "_"))
}
