// Package fanout decides which peers of a publisher get a message, and queues it for them:
// the part of PUB and XPUB without connections. It knows a peer as a [Subscriber] with a
// queue.Outbox, and the connection behind it as a [Link].
//
// Peers with the same topics form a group, and a message is matched once for a group. The
// peers of a group share a queue.Log.
package fanout
