// Package blackbox is the Black Box pattern of the ZeroMQ Guide (chapter 5): a
// subscriber for more messages than one core can take.
//
// A [Box] divides the topics among shards. Each shard has a SUB socket and
// connections of its own, and a goroutine that receives from them, on a core of
// its own if asked. Messages go in batches, as views into the bytes that were
// read, to the function Options.Handle: in the shard's goroutine, or in several
// workers of the shard if the work needs more than one core. Messages with the
// same key go to the same worker and stay in order.
//
// # Design
//
// Nothing is paid for a message but looking at its topic: no copy, no allocation, no
// lock, no channel. What a batch costs, a thousand messages share. One parcel
// holds what was received at once and is divided by key into one [Batch] a
// worker; the parcel is reused when all of them were released. Each worker has a
// queue of batches with a bound. When it is full, the shard waits, and so, in the
// end, does the publisher's connection for this shard and no other; or the shard
// drops what the worker would get, and counts it. shard.go receives and divides,
// queue.go has the bound, batch.go what is lent, pin_linux.go the cores.
//
// docs/BLACKBOX.md has a picture, and says what is guaranteed and what is not.
package blackbox
