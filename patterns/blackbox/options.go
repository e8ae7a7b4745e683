package blackbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// Defaults and bounds of Options.
const (
	DefaultQueueBatches = 16      // batches, for each worker
	DefaultQueueBytes   = 8 << 20 // bytes, for each worker

	MaxShards       = 1024
	MaxWorkers      = 1024    // in each shard
	MaxQueueBatches = 1 << 16 // of QueueBatches
)

// Policy says what a shard does with messages for a worker whose queue is full.
type Policy uint8

const (
	// Block makes the shard wait. What the publisher sends meanwhile is queued
	// in the shard's socket, then in the kernel, and then at the publisher,
	// which does what it does with a slow subscriber: libzmq drops. Other shards
	// go on.
	Block Policy = iota
	// Drop discards the worker's messages of this batch and counts them. The
	// shard's other workers get theirs.
	Drop
)

func (p Policy) String() string {
	switch p {
	case Block:
		return "block"
	case Drop:
		return "drop"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Shard is one part of the topics.
type Shard struct {
	// Topics are prefixes of the first frame, at least one. A topic must not be a prefix
	// of another shard's topic, or equal to it, if both shards connect to the same
	// endpoint: both would receive the messages of the longer one.
	Topics []string

	// Connect, if not empty, takes the place of Options.Connect. Endpoints with a
	// source address, such as "tcp://192.0.2.7;feed.example:5556", give each
	// shard a network interface of its own.
	Connect []string
}

// Options configures a Box. Shards, Handle, and Connect in Options or in each
// shard, are needed.
type Options struct {
	// Connect are the endpoints of the publishers. Each shard connects to all of
	// them.
	Connect []string

	// Shards are the parts of the topics, at most MaxShards. Spread and SpreadAll
	// make them. A message whose topic is in no shard is not received: the
	// publisher does not send it.
	Shards []Shard

	// Handle is called for each batch, by one worker at a time for the batches of
	// that worker, and by different workers at once. The batch is lent until
	// Handle returns, unless Handle calls its Keep. Handle must not call Close.
	Handle func(*Batch)

	// Workers is the number of goroutines of each shard that call Handle, beside
	// the one that receives. With 0 that one calls Handle itself, which costs
	// least if the work is slight. At most MaxWorkers.
	Workers int

	// Key returns the key of a message. In each shard, messages with the same key
	// go to the same worker, in the order in which they were received. Which
	// worker it is may differ from one Box to the next. The
	// result may be a part of the message and is not kept. Key is called by
	// several goroutines at once, and only if there are several workers. If nil,
	// the key is the whole first frame.
	Key func(zmtp.Message) []byte

	// QueueBatches and QueueBytes bound what a worker has been given and not yet
	// released: queued batches, the one that it works on, and those that it keeps.
	// Each batch counts with all the bytes that were received with it, since it
	// keeps all of them in memory. A worker that has nothing gets one batch of any
	// size. 0 means DefaultQueueBatches and DefaultQueueBytes.
	QueueBatches, QueueBytes int

	// Policy says what happens when a worker's queue is full. Default Block.
	Policy Policy

	// Cores are the processor cores to run on: the shards take the first ones, in
	// order, and the workers the others in turn. If there are too few, cores are
	// used several times. Each of these goroutines then has a thread that runs on
	// its core alone. Without Cores the system decides, and so it does on systems
	// other than Linux. See AllowedCores.
	Cores []int

	// Socket are the options of the shards' SUB sockets, such as Security. A RecvHWM of 0
	// means no bound on the number of messages here, so that RecvHWMBytes alone
	// counts. Prepare, RecvTimeout and InvertMatching must not be set.
	Socket sockets.Options
}

// OptionError is one thing that is wrong with an Options. New returns all of
// them at once, joined (errors.Join).
type OptionError struct {
	Field  string
	Reason string
}

func (e *OptionError) Error() string { return "blackbox: Options." + e.Field + " " + e.Reason }

// withDefaults returns o with its defaults, or all that is wrong with it.
func (o Options) withDefaults() (Options, error) {
	var faults []error
	bad := func(field, format string, args ...any) {
		faults = append(faults, &OptionError{field, fmt.Sprintf(format, args...)})
	}
	if o.Handle == nil {
		bad("Handle", "is nil")
	}
	if n := len(o.Shards); n == 0 || n > MaxShards {
		bad("Shards", "has %d shards; it needs 1 to %d", n, MaxShards)
	}
	o.Shards = slices.Clone(o.Shards)
	for i := range o.Shards {
		s := &o.Shards[i]
		if len(s.Topics) == 0 {
			bad(fmt.Sprintf("Shards[%d].Topics", i), "is empty")
		}
		if len(s.Connect) == 0 {
			s.Connect = o.Connect
		}
		if len(s.Connect) == 0 {
			bad(fmt.Sprintf("Shards[%d].Connect", i), "is empty, and so is Options.Connect")
		}
	}
	checkDisjoint(o.Shards, bad)
	if o.Workers < 0 || o.Workers > MaxWorkers {
		bad("Workers", "%d is not from 0 to %d", o.Workers, MaxWorkers)
	}
	if o.QueueBatches < 0 || o.QueueBatches > MaxQueueBatches {
		bad("QueueBatches", "%d is not from 0 to %d", o.QueueBatches, MaxQueueBatches)
	}
	if o.QueueBatches == 0 {
		o.QueueBatches = DefaultQueueBatches
	}
	if o.QueueBytes < 0 {
		bad("QueueBytes", "is negative")
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = DefaultQueueBytes
	}
	if o.Policy > Drop {
		bad("Policy", "is neither Block nor Drop")
	}
	checkCores(o.Cores, bad)
	if o.Socket.Prepare != nil {
		bad("Socket.Prepare", "must not be set")
	}
	if o.Socket.RecvTimeout != 0 {
		bad("Socket.RecvTimeout", "must not be set")
	}
	if o.Socket.InvertMatching {
		bad("Socket.InvertMatching", "must not be set")
	}
	if o.Socket.RecvHWM == 0 {
		o.Socket.RecvHWM = -1
	}
	return o, errors.Join(faults...)
}

// checkCores reports cores that this process may not use.
func checkCores(cores []int, bad func(field, format string, args ...any)) {
	allowed := AllowedCores()
	for _, c := range cores {
		switch {
		case c < 0:
			bad("Cores", "has a negative number")
		case allowed != nil && !slices.Contains(allowed, c):
			bad("Cores", "has core %d, which this process may not use", c)
		}
	}
}

// checkDisjoint reports topics of two shards that would bring the same message
// to both. Shards that share no endpoint may have the same topics.
func checkDisjoint(shards []Shard, bad func(field, format string, args ...any)) {
	type entry struct {
		topic string
		shard int
	}
	at := map[string][]entry{} // by endpoint
	for i, s := range shards {
		for _, endpoint := range slices.Compact(slices.Sorted(slices.Values(s.Connect))) {
			for _, topic := range s.Topics {
				at[endpoint] = append(at[endpoint], entry{topic, i})
			}
		}
	}
	reported := map[[2]int]bool{}
	for _, all := range at {
		slices.SortFunc(all, func(a, b entry) int {
			if c := strings.Compare(a.topic, b.topic); c != 0 {
				return c
			}
			return a.shard - b.shard
		})
		// In this order a prefix comes before all that begin with it, and those
		// follow each other: outer holds the prefixes of the current one.
		var outer []entry
		for _, e := range all {
			for len(outer) > 0 && !strings.HasPrefix(e.topic, outer[len(outer)-1].topic) {
				outer = outer[:len(outer)-1]
			}
			if n := len(outer); n > 0 && outer[n-1].shard != e.shard {
				o := outer[n-1]
				if pair := [2]int{o.shard, e.shard}; !reported[pair] {
					reported[pair] = true
					bad(fmt.Sprintf("Shards[%d].Topics", e.shard), "has %q, of which %q in shard %d is a prefix", e.topic, o.topic, o.shard)
				}
			}
			outer = append(outer, e)
		}
	}
}

// Spread deals the topics out to n shards in turn.
func Spread(n int, topics ...string) []Shard {
	shards := make([]Shard, max(n, 0))
	for i, topic := range topics {
		if n > 0 {
			s := &shards[i%n]
			s.Topics = append(s.Topics, topic)
		}
	}
	return shards
}

// SpreadAll makes n shards, up to 256, that together receive every message,
// except that with more than one shard nobody receives a message whose first frame is empty.
// It deals the 256 values of the topic's first byte out in turn, so neighbours
// such as '0' and '1' are in different shards. If most topics begin with the same
// byte, use Spread with longer prefixes.
func SpreadAll(n int) []Shard {
	if n == 1 {
		return []Shard{{Topics: []string{""}}}
	}
	topics := make([]string, 256)
	for i := range topics {
		topics[i] = string([]byte{byte(i)})
	}
	return Spread(n, topics...)
}
