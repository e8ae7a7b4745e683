// Package lastvalue implements the Last Value Cache of the ZeroMQ Guide (chapter 5): a
// device between publishers and subscribers that sends a new subscriber the last
// message of each topic to which it subscribes, and then every live message.
//
// A [Cache] subscribes to all messages of its publishers ([Cache.ConnectPublisher],
// [Cache.BindPublisher]), forwards them to its subscribers ([Cache.Bind]), and keeps the
// last message of every topic. A topic is the first frame of a message; a message has
// any number of frames.
//
// # Guarantees
//
// When a subscription arrives, the cache sends that subscriber, and no other, the last
// message of every topic with the subscription's prefix:
//
//   - The subscriber misses no message between these and the live ones.
//   - It never gets an older message of a topic after a newer one. One subscription
//     delivers no message twice.
//   - A later subscription to the same prefix, by the same or another subscriber, is
//     answered in the same way.
//
// Live messages of other topics may arrive between the last values, so a cache of a
// million topics does not block its subscribers.
//
// # Memory
//
// Options.MaxTopics and MaxBytes bound the cache. When it is full, it removes the least
// recently updated topic. Options.Expiry removes topics by age. A subscriber that reads
// too slowly is disconnected, so that it misses no messages: a ZeroMQ SUB reconnects by
// itself, and then gets the last values.
//
// # Design
//
// values.go keeps the messages in the store of CHP servers (internal/store), whose log
// the garbage collector does not scan, and the topics in a B-tree. One mutex, locked
// once for a batch of messages, defines the order: messages enter the store and the
// subscribers' queues under it, and last values are read and queued under it.
// subscribers.go sends large answers in chunks: it queues the next one when the last one
// has been written.
//
// docs/LASTVALUE.md has a diagram, the defaults, and the limits.
package lastvalue
