// Package espresso implements the Espresso pattern of the ZeroMQ Guide (chapter 5): it
// shows the traffic between publishers and subscribers, between clients and services,
// or in a pipeline.
//
// A [Tap] is a proxy that can be observed. It forwards messages like [sockets.Proxy].
// Each [Observer] has a bounded queue of events ([Event]): messages and subscriptions, with
// direction, time, size, topic and frames. A slow observer loses events, and learns how
// many; it never delays the traffic.
//
// [Observer.Record] writes events to a file, a [Reader] reads them back, and [Play]
// calls a function with each event at its time, at any speed. The commands are zdev tap
// and zdev replay.
//
// # Design
//
// tap.go copies the messages that the proxy receives (sockets.ProxyOptions.Observe) to
// the queue of each observer (observer.go). A queue is two buffers: the proxy appends to
// one while the observer reads the other. They contain records in the format of a file
// (record.go), so recording does not copy them again. event.go interprets the frames of
// a message, depending on the types of the two sockets. player.go plays recordings.
//
// docs/ESPRESSO.md has a diagram, the file format, and the guarantees and limits.
package espresso
