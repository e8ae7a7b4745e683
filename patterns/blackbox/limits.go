package blackbox

// Defaults and limits of Options.
const (
	DefaultQueueBatches = 16      // batches, for each worker
	DefaultQueueBytes   = 8 << 20 // bytes, for each worker

	MaxShards       = 1024
	MaxWorkers      = 1024    // in each shard
	MaxQueueBatches = 1 << 16 // limit of QueueBatches
)
