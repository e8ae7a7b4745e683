// Package workload defines the updates of a benchmark and how its receivers check them.
// Everything follows from a Spec, so each process computes its own part and the expected
// result.
package workload

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Spec is a workload.
type Spec struct {
	Prefix     string `json:"prefix"`     // of every key; begins and ends with a slash
	Subtree    string `json:"subtree"`    // that the replicas follow: Prefix, or empty for the whole map
	Updates    int    `json:"updates"`    // measured ones, of all publishers together
	Warmup     int    `json:"warmup"`     // before them, not measured
	Keys       int    `json:"keys"`       // of all publishers together
	ValueSize  int    `json:"value_size"` // bytes
	Publishers int    `json:"publishers"`

	// Each says that the first updates of a publisher set each of its keys once, and
	// that Warmup is Keys.
	Each bool `json:"each,omitempty"`
	// Conflates says that a replica may miss values that others have replaced.
	Conflates bool `json:"conflates,omitempty"`
}

// MinValueSize and MaxValueSize limit Spec.ValueSize: a value holds a [Payload],
// and a server must accept it.
const (
	MinValueSize = payloadSize
	MaxValueSize = 16 << 20
)

// Warmed returns how many updates publisher p sends to warm up.
func (s Spec) Warmed(p int) int { return share(s.Warmup, s.Publishers, p) }

// Measured returns how many updates publisher p sends to be measured.
func (s Spec) Measured(p int) int { return share(s.Updates, s.Publishers, p) }

// share splits total evenly; the first few parts get the remainder.
func share(total, parts, part int) int {
	n := total / parts
	if part < total%parts {
		n++
	}
	return n
}

// KeysOf returns the keys of publisher p. Each key has one publisher, so that
// the final content does not depend on the order of the publishers' updates. All keys of
// a workload are of one length.
func (s Spec) KeysOf(p int) []string {
	digits := max(5, len(strconv.Itoa(s.Keys-1)))
	keys := make([]string, 0, share(s.Keys, s.Publishers, p))
	// Side by side in memory, as in an application that has them from one read: the
	// figures are to be those of the pipeline, without cache misses of its source.
	var all strings.Builder
	all.Grow((len(s.Prefix) + digits) * cap(keys))
	for i := p; i < s.Keys; i += s.Publishers {
		from := all.Len()
		fmt.Fprintf(&all, "%s%0*d", s.Prefix, digits, i)
		keys = append(keys, all.String()[from:])
	}
	return keys
}

// number returns the number of a key, or -1 if it is not one of the workload.
func (s Spec) number(key []byte) int {
	digits, ok := bytes.CutPrefix(key, []byte(s.Prefix))
	n, err := strconv.Atoi(string(digits))
	if !ok || err != nil || n < 0 || n >= s.Keys {
		return -1
	}
	return n
}

// Sentinel is the key by which publisher p says that it has sent everything.
func (s Spec) Sentinel(p int) string { return SentinelPrefix(s.Prefix) + strconv.Itoa(p) }

// SentinelPrefix is the prefix of a workload's sentinels, and of no other key.
func SentinelPrefix(prefix string) string { return prefix + "end/" }
