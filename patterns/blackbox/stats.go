package blackbox

// Stats has the counters of a Box.
type Stats struct {
	Shards []ShardStats // in the order of Options.Shards
}

// ShardStats has the counters of a shard.
type ShardStats struct {
	Messages, Batches uint64 // received
	Publishers        int    // connected now
	Core              int    // the core of its thread, or -1
	Workers           []WorkerStats
}

// WorkerStats has the counters of a worker. Every message of a shard counts in Messages
// or Dropped of one worker, once it was distributed.
type WorkerStats struct {
	Messages uint64 // queued for the worker or passed to Handle
	Dropped  uint64 // dropped because its queue was full (PolicyDrop) or the Box was closed
	Waits    uint64 // times the shard waited because its queue was full (PolicyBlock)

	Held, HeldBytes int // batches not yet released, and their size
	Core            int // the core of its thread, or -1
}

// Stats returns the current counters. It may be called after Close.
func (b *Box) Stats() Stats {
	all := Stats{Shards: make([]ShardStats, len(b.shards))}
	for i, s := range b.shards {
		one := &all.Shards[i]
		one.Core = s.thread.core()
		for _, w := range s.workers {
			stats := w.queue.stats()
			stats.Core = w.thread.core()
			if s.inline {
				stats.Core = one.Core
			}
			one.Workers = append(one.Workers, stats)
		}
		one.Messages, one.Batches = s.messages.Load(), s.batches.Load()
		for _, p := range s.sub.Peers() {
			if p.Connected {
				one.Publishers++
			}
		}
	}
	return all
}
