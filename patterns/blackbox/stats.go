package blackbox

// Stats is a reading of a Box's counters.
type Stats struct {
	Shards []ShardStats // as in Options.Shards
}

// ShardStats is one shard's part.
type ShardStats struct {
	Messages, Batches uint64 // received
	Publishers        int    // connected now
	Core              int    // that its thread is bound to; -1 if to none
	Workers           []WorkerStats
}

// WorkerStats is one worker's part. All messages of its shard are in Messages or
// Dropped of some worker, but for the batch that is being handed out.
type WorkerStats struct {
	Messages uint64 // queued for the worker or given to Handle
	Dropped  uint64 // dropped because its queue was full (Drop) or the Box closed
	Waits    uint64 // how often the shard has waited because its queue was full (Block)

	Held, HeldBytes int // batches that it has not released, and their size
	Core            int // that its thread is bound to; -1 if to none
}

// Stats returns a reading of the counters. It may be called after Close.
func (b *Box) Stats() Stats {
	all := Stats{Shards: make([]ShardStats, len(b.shards))}
	for i, s := range b.shards {
		one := &all.Shards[i]
		one.Core = s.thread.core()
		for _, w := range s.workers {
			stats := w.queue.stats()
			stats.Core = w.thread.core()
			if s.inside {
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
