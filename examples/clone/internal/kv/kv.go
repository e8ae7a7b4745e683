// Package kv is the part that the Clone programs share: their two message forms, random
// updates to publish, and the line that each program prints at its end.
package kv

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Message is one update, or one pair of a snapshot. Models 1 to 4 send three
// frames of it: key, sequence and body. Model 5 sends all five.
type Message struct {
	Key        string
	Sequence   int64  // 8 bytes on the wire, high byte first
	UUID       []byte // 16 bytes, or none
	Properties string // lines of name=value, each with a newline at its end
	Body       []byte
}

// Three returns the frames of models 1 to 4.
func (m Message) Three() [][]byte {
	return [][]byte{[]byte(m.Key), m.sequence(), m.Body}
}

// Five returns the frames of model 5, which are those of CHP (RFC 12) as well.
func (m Message) Five() [][]byte {
	return [][]byte{[]byte(m.Key), m.sequence(), m.UUID, []byte(m.Properties), m.Body}
}

func (m Message) sequence() []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(m.Sequence))
}

// ParseThree reads the frames of models 1 to 4. It returns false for anything
// else.
func ParseThree(frames [][]byte) (Message, bool) {
	if len(frames) != 3 || len(frames[1]) != 8 {
		return Message{}, false
	}
	return Message{
		Key:      string(frames[0]),
		Sequence: int64(binary.BigEndian.Uint64(frames[1])),
		Body:     frames[2],
	}, true
}

// ParseFive reads the frames of model 5. It returns false for anything else.
func ParseFive(frames [][]byte) (Message, bool) {
	if len(frames) != 5 || len(frames[1]) != 8 {
		return Message{}, false
	}
	return Message{
		Key:        string(frames[0]),
		Sequence:   int64(binary.BigEndian.Uint64(frames[1])),
		UUID:       frames[2],
		Properties: string(frames[3]),
		Body:       frames[4],
	}, true
}

// TTL returns the property ttl, in whole seconds on the wire or with a fraction,
// as the guide's Python programs have it. It returns 0 if there is none, or
// if it is not a sensible time.
func (m Message) TTL() time.Duration {
	for line := range strings.Lines(m.Properties) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if name != "ttl" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || !(seconds > 0 && seconds < 1e9) {
			return 0
		}
		return time.Duration(seconds * float64(time.Second))
	}
	return 0
}

// Form is how a model writes messages, and what it does with them.
type Form struct {
	frames func(Message) [][]byte
	parse  func([][]byte) (Message, bool)
	apply  func(pairs map[string]Message, m Message)
}

// Three is the form of models 1 to 4, which delete nothing.
var Three = Form{Message.Three, ParseThree, func(pairs map[string]Message, m Message) { pairs[m.Key] = m }}

// Five is the form of model 5, in which an update without a body deletes its key.
var Five = Form{Message.Five, ParseFive, func(pairs map[string]Message, m Message) {
	if len(m.Body) > 0 {
		pairs[m.Key] = m
	} else {
		delete(pairs, m.Key)
	}
}}

// String returns a line to print.
func (m Message) String() string {
	return fmt.Sprintf("%d: %s=%s", m.Sequence, m.Key, m.Body)
}

// Random returns an update of one of 10,000 keys, which begin with subtree. Its
// UUID is new.
func Random(sequence int64, subtree string) Message {
	uuid := make([]byte, 16)
	crand.Read(uuid)
	return Message{
		Key:      subtree + strconv.Itoa(rand.IntN(10_000)),
		Sequence: sequence,
		UUID:     uuid,
		Body:     strconv.AppendInt(nil, rand.Int64N(1_000_000), 10),
	}
}

// Summary describes the map of a program at its end. Programs with the same map print the
// same digest.
func Summary(sequence int64, pairs map[string]Message) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		for _, s := range [][]byte{[]byte(key), pairs[key].Body} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
			h.Write(s)
		}
	}
	return fmt.Sprintf("end: sequence=%d keys=%d digest=%.8x", sequence, len(pairs), h.Sum(nil))
}

// Start reads the flags, of which it adds --host with a usage, and returns its value and
// a context that ends with Ctrl-C.
func Start(usage string) (ctx context.Context, host string) {
	flag.StringVar(&host, "host", "127.0.0.1", usage)
	flag.Parse()
	ctx, _ = signal.NotifyContext(context.Background(), os.Interrupt)
	return ctx, host
}

// Must returns v. It ends the program if there is an error, as Check does.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check ends the program if there is an error: without a message if Ctrl-C caused it.
func Check(err error) {
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(0)
	case err != nil:
		log.Fatal(err)
	}
}
