// Package blackbox implements the Black Box pattern of the ZeroMQ Guide (chapter 5): a
// subscriber for more messages than one core can process.
//
// A [Box] divides the topics among shards. Each shard has its own SUB socket and
// connections, and a goroutine that receives from them, optionally on its own core. The
// function Options.Handle gets the messages in batches, as views of the received bytes.
// It runs in the shard's goroutine, or in several workers of the shard if the work needs
// more than one core. Messages with the same key go to the same worker, in order.
//
// # Design
//
// A message costs no copy, allocation, lock or channel operation, only a hash of its key
// if there are several workers. Other costs are per batch, often for a thousand
// messages. A chunk holds the messages of one receive call and is divided by key into
// one [Batch] for each worker; it is reused when all of them were released. Each worker
// has a bounded queue of batches. When it is full, the shard waits, and finally the
// publisher's connection to this shard, but no other; or the shard drops the worker's
// messages and counts them. shard.go receives and divides, queue.go has the bounded
// queue, batch.go the batches and chunks, pin_linux.go the cores.
//
// docs/BLACKBOX.md has a diagram, and the guarantees and limits.
package blackbox
