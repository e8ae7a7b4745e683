// Package lastvalue is the Last Value Cache of the ZeroMQ Guide (chapter 5): a
// device between publishers and subscribers that gives a new subscriber the last
// message of each topic it subscribes to, and then every message, as a publisher
// does.
//
// A [Cache] subscribes to everything at its publishers ([Cache.ConnectPublisher],
// [Cache.BindPublisher]), forwards it to its subscribers ([Cache.Bind]), and keeps
// the last message of every topic. A topic is the first frame of a message; a
// message has any number of frames.
//
// # Guarantees
//
// When a subscription arrives, that subscriber, and nobody else, is sent the last
// message of every topic that begins with the subscription's prefix:
//
//   - It misses no message between these and the live ones.
//   - It never sees an older message of a topic after a newer one, and by one
//     subscription sees none twice.
//   - A later subscription to the same prefix, by the same subscriber or another
//     one, is answered in the same way.
//
// Live messages of other topics may arrive among the last values, so a cache of a
// million topics does not hold its subscribers up.
//
// # Memory
//
// The cache is bounded in topics and in bytes (Options.MaxTopics, MaxBytes). When
// it is full, the topic that has gone without an update for longest is forgotten.
// Options.Expiry forgets topics by age. A subscriber that reads too slowly is
// disconnected instead of missing messages: a ZeroMQ SUB connects again by itself,
// and then gets the last values.
//
// # Design
//
// values.go keeps the messages in a map of CHP servers (internal/store), whose log
// the garbage collector does not look into, and the topics in order in a B-tree
// beside it. One mutex, taken once for a batch of messages, makes the order:
// under it messages enter the map and the subscribers' queues, and under it
// last values are read from the map and queued. So a subscriber's queue always
// gets what is the last message of a topic at that moment. subscribers.go sends
// large answers in parcels: the next one goes when the last one has been written.
//
// docs/LASTVALUE.md has a picture, the defaults, and the limits.
package lastvalue
