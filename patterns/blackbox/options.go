package blackbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"clustermap/internal/option"
	"clustermap/internal/text"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Policy decides about messages for a worker whose queue is full.
type Policy uint8

const (
	// PolicyBlock makes the shard wait. Messages are then queued in the shard's socket,
	// then in the kernel, and then at the publisher, which treats the shard as a
	// slow subscriber: libzmq drops messages. Other shards continue.
	PolicyBlock Policy = iota
	// PolicyDrop drops the batch for the worker and counts its messages. The shard's
	// other workers get theirs.
	PolicyDrop
)

func (p Policy) String() string {
	return text.Of(p, "Policy", "block", "drop")
}

// MarshalText returns the text of String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Shard is a subset of the topics.
type Shard struct {
	// Topics are one or more prefixes of the first frame. If two shards connect to
	// the same endpoint, a topic of one must not be a prefix of, or equal to, a
	// topic of the other: both would receive the same messages.
	Topics []string

	// Connect, if not empty, replaces Options.Connect. With source addresses in
	// endpoints, such as "tcp://192.0.2.7;feed.example:5556", each shard can use a
	// different network interface.
	Connect []string
}

// Options configures a Box. Shards and Handle are required, and so is Connect, here or in
// each shard.
type Options struct {
	// Connect has the endpoints of the publishers. Each shard connects to all of
	// them.
	Connect []string

	// Shards divides the topics: see Spread and SpreadAll. There can be up to
	// MaxShards. Messages whose topic is in no shard are not received.
	Shards []Shard

	// Handle is called for each batch. Workers call it concurrently, each for one
	// batch at a time. The batch is valid until Handle returns, unless Handle calls
	// its Keep. Handle must not call Close.
	Handle func(*Batch)

	// Workers is the number of goroutines of each shard that call Handle, besides
	// the one that receives, up to MaxWorkers. With 0, the receiving goroutine calls
	// Handle itself, which is fastest for little work.
	Workers int

	// Key returns the key of a message. In each shard, messages with the same key
	// go to the same worker, in the order in which they were received. The worker
	// of a key may differ between Boxes. The result may be a part of the message
	// and is not kept. Several goroutines call Key at once, and only if there are
	// several workers. If Key is nil, the key is the first frame.
	Key func(zmtp.WireMessage) []byte

	// QueueBatches and QueueBytes bound the batches that a worker has: queued, in
	// Handle, and kept. The size of a batch is that of all messages that were
	// received with it, since it keeps their memory. A worker without batches
	// accepts a batch of any size. 0 means DefaultQueueBatches and
	// DefaultQueueBytes.
	QueueBatches, QueueBytes int

	// Policy decides about messages for a worker whose queue is full. The default is
	// PolicyBlock.
	Policy Policy

	// Cores are the processor cores to use: the first ones, in order, for the
	// shards, and the others in turn for the workers. If there are too few, several
	// goroutines share a core. Each of these goroutines has a thread that runs only
	// on its core. Without Cores, and on systems other than Linux, the system
	// decides. See AllowedCores.
	Cores []int

	// Socket configures the shards' SUB sockets. Here a RecvHWM of 0 means no limit
	// on messages, so only RecvHWMBytes applies. RecvTimeout and
	// InvertMatching must not be set.
	Socket sockets.Options
}

// OptionError describes one invalid field of Options. New reports all invalid fields at
// once, joined by errors.Join.
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error

// withDefaults returns o with its defaults. The error reports all invalid fields.
func (o Options) withDefaults() (Options, error) {
	c := option.Checker{Package: "blackbox"}
	c.If(o.Handle == nil, "Handle", "is nil")
	if n := len(o.Shards); n == 0 || n > MaxShards {
		c.Bad("Shards", "has %d shards; 1 to %d are required", n, MaxShards)
	}
	o.Shards = slices.Clone(o.Shards)
	for i := range o.Shards {
		s := &o.Shards[i]
		if len(s.Topics) == 0 {
			c.Bad(fmt.Sprintf("Shards[%d].Topics", i), "is empty")
		}
		if len(s.Connect) == 0 {
			s.Connect = o.Connect
		}
		if len(s.Connect) == 0 {
			c.Bad(fmt.Sprintf("Shards[%d].Connect", i), "is empty, and so is Options.Connect")
		}
	}
	checkDisjoint(&c, o.Shards)
	if o.Workers < 0 || o.Workers > MaxWorkers {
		c.Bad("Workers", "%d is not from 0 to %d", o.Workers, MaxWorkers)
	}
	if o.QueueBatches < 0 || o.QueueBatches > MaxQueueBatches {
		c.Bad("QueueBatches", "%d is not from 0 to %d", o.QueueBatches, MaxQueueBatches)
	}
	o.QueueBatches = cmp.Or(o.QueueBatches, DefaultQueueBatches)
	option.Default(&c, "QueueBytes", &o.QueueBytes, DefaultQueueBytes)
	c.If(o.Policy > PolicyDrop, "Policy", "is neither PolicyBlock nor PolicyDrop")
	checkCores(&c, o.Cores)
	c.If(o.Socket.RecvTimeout != 0, "Socket.RecvTimeout", "must not be set")
	c.If(o.Socket.InvertMatching, "Socket.InvertMatching", "must not be set")
	o.Socket.RecvHWM = cmp.Or(o.Socket.RecvHWM, sockets.Unlimited)
	return o, c.Err()
}

// checkCores reports cores that this process may not use.
func checkCores(c *option.Checker, cores []int) {
	allowed := AllowedCores()
	for _, core := range cores {
		switch {
		case core < 0:
			c.Bad("Cores", "has a negative number")
		case allowed != nil && !slices.Contains(allowed, core):
			c.Bad("Cores", "has core %d, which this process may not use", core)
		}
	}
}

// checkDisjoint reports topics with which two shards would receive the same message.
// Shards without a common endpoint may have the same topics.
func checkDisjoint(c *option.Checker, shards []Shard) {
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
			return cmp.Or(strings.Compare(a.topic, b.topic), a.shard-b.shard)
		})
		// In this order, the topics with a prefix directly follow it: outer holds the
		// prefixes of the current topic.
		var outer []entry
		for _, e := range all {
			for len(outer) > 0 && !strings.HasPrefix(e.topic, outer[len(outer)-1].topic) {
				outer = outer[:len(outer)-1]
			}
			if n := len(outer); n > 0 && outer[n-1].shard != e.shard {
				o := outer[n-1]
				if pair := [2]int{o.shard, e.shard}; !reported[pair] {
					reported[pair] = true
					c.Bad(fmt.Sprintf("Shards[%d].Topics", e.shard), "has %q, of which %q in shard %d is a prefix", e.topic, o.topic, o.shard)
				}
			}
			outer = append(outer, e)
		}
	}
}

// Spread distributes the topics to n shards in turn.
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

// SpreadAll returns n shards, up to 256, that together receive all messages; with more
// than one shard, all but those with an empty first frame. It distributes the 256 values
// of the topic's first byte in turn, so '0' and '1' are in different shards. If most
// topics begin with the same byte, use Spread with longer prefixes.
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
