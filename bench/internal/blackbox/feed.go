// Package blackbox measures how many messages a second a subscriber takes and
// works on: patterns/blackbox, and the side that a command adds for comparison.
//
// A publisher, a process of its own, sends the same batches over and over. They were made
// before, in wire form, so that it takes little of the machine, and it waits for
// slow subscribers instead of dropping. The subscriber looks at every message: its
// length, whether it is the next one of its key, and the sum of a field. A message that
// is lost, doubled, out of order or changed makes the measurement fail.
package blackbox

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"clustermap/zmtp"
)

// A message is one frame of Size bytes: the topic, one letter and three digits;
// the number of the key; which message of its key it is, in this cycle; a value,
// whose sum is the work; filling. Numbers are little-endian.
const (
	Size    = 100
	letters = 16 // first letters of topics, from A on
	Keys    = 1024
	Rounds  = 16 // messages of each key in a cycle
	cycle   = Keys * Rounds

	AtKey, AtRound, AtValue = 4, 8, 16
	batchMessages           = 1024
)

// letter returns the n-th prefix of topics.
func letter(n int) string { return string(rune('A' + n)) }

func value(key, round uint64) uint64 { return (key*Rounds + round) * 0x9e3779b97f4a7c15 >> 24 }

// batch is wire messages of the feed.
type batch []byte

// Retain and Release make it the owner of its bytes, which stay.
func (batch) Retain()  {}
func (batch) Release() {}

// feed makes the batches of one cycle, with those messages that channel i of n has:
// every n-th letter's.
func feed(i, n int) (all []batch) {
	var current batch
	messages := 0
	next := func() {
		all, current, messages = append(all, current), nil, 0
	}
	for round := range uint64(Rounds) {
		for at := range uint64(Keys) {
			key := (at*389 + round*97) % Keys // in an order that jumps, each key once
			first := int(key % letters)
			if first%n != i {
				continue
			}
			m := make([]byte, Size)
			copy(m, fmt.Sprintf("%s%03d", letter(first), key/letters))
			binary.LittleEndian.PutUint32(m[AtKey:], uint32(key))
			binary.LittleEndian.PutUint64(m[AtRound:], round)
			binary.LittleEndian.PutUint64(m[AtValue:], value(key, round))
			for j := AtValue + 8; j < Size; j++ {
				m[j] = byte(j)
			}
			current = zmtp.AppendFrame(current, m, false)
			if messages++; messages == batchMessages {
				next()
			}
		}
	}
	if messages > 0 {
		next()
	}
	return all
}

// cycleSum is the sum of a cycle's values.
func cycleSum() (sum uint64) {
	for key := range uint64(Keys) {
		for round := range uint64(Rounds) {
			sum += value(key, round)
		}
	}
	return sum
}

// counter checks and counts the messages of a subscriber.
type counter struct {
	want    int64
	checks  []check
	counted atomic.Int64
	started atomic.Bool
	begin   reading
	end     reading
	done    chan struct{}
}

// check is the state of one worker.
type check struct {
	next  [Keys]uint64 // round of each key
	sum   uint64
	wrong int64
	_     [64]byte
}

// reading is a moment, and the processor time that the process had used.
type reading struct {
	at  time.Time
	cpu time.Duration
}

func now() reading { return reading{time.Now(), processorTime()} }

func newCounter(count int64, workers int) *counter {
	return &counter{
		want:   count,
		checks: make([]check, workers),
		done:   make(chan struct{}),
	}
}

// start notes when the first messages come.
func (c *counter) start() {
	if !c.started.Load() && !c.started.Swap(true) {
		c.begin = now()
	}
}

// message does the work that a message is worth.
func (c *check) message(m zmtp.WireMessage) {
	body, rest := m.Next()
	if len(body) != Size || len(rest) > 0 {
		c.wrong++
		return
	}
	key := binary.LittleEndian.Uint32(body[AtKey:])
	if key >= Keys {
		c.wrong++
		return
	}
	round := binary.LittleEndian.Uint64(body[AtRound:])
	if round != c.next[key] {
		c.wrong++
	}
	c.next[key] = (round + 1) % Rounds
	c.sum += binary.LittleEndian.Uint64(body[AtValue:])
}

// add counts n messages that a worker has processed.
func (c *counter) add(n int) {
	total := c.counted.Add(int64(n))
	if total >= c.want && total-int64(n) < c.want {
		c.end = now()
		close(c.done)
	}
}

// figure is the result, once the measurement is done.
func (c *counter) figure() (Figure, error) {
	f := Figure{Messages: c.counted.Load(), Elapsed: c.end.at.Sub(c.begin.at), Processor: c.end.cpu - c.begin.cpu}
	for i := range c.checks {
		f.Wrong += c.checks[i].wrong
		f.Sum += c.checks[i].sum
	}
	return f, f.check(c.want)
}

// Figure is the measurement of a subscriber.
type Figure struct {
	Messages  int64
	Sum       uint64        // of the values
	Wrong     int64         // messages that were out of order or of another form
	Elapsed   time.Duration // from the first messages to the last
	Processor time.Duration // of the subscriber's process, meanwhile
}

// check returns an error if the figure does not match a run of count messages.
func (f Figure) check(count int64) error {
	sum := cycleSum() * uint64(count/cycle)
	switch {
	case f.Messages != count:
		return fmt.Errorf("%d messages came, want %d", f.Messages, count)
	case f.Wrong > 0:
		return fmt.Errorf("%d messages were out of order, or of another form", f.Wrong)
	case f.Sum != sum:
		return fmt.Errorf("the values' sum is %d, want %d", f.Sum, sum)
	}
	return nil
}

// rate is messages a second.
func (f Figure) rate() float64 { return float64(f.Messages) / f.Elapsed.Seconds() }

// cores is how many processors the subscriber kept busy.
func (f Figure) cores() float64 { return f.Processor.Seconds() / f.Elapsed.Seconds() }

// perMessage is the processor time of a message, in nanoseconds.
func (f Figure) perMessage() float64 {
	return float64(f.Processor.Nanoseconds()) / float64(f.Messages)
}
