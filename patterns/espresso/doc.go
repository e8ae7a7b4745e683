// Package espresso is the Espresso pattern of the ZeroMQ Guide (chapter 5): it shows
// what flows between publishers and subscribers, or between clients and services.
//
// A [Tap] is a proxy whose flow can be observed: it stands where a proxy stands, and
// forwards as [sockets.Proxy] does. Each [Observer] has a bounded queue of copies, and
// gets [Event]s: a message or a subscription, with its direction, time, size, topic and
// frames. An observer that is too slow loses events, and is told how many; the flow
// never waits for it.
//
// [Observer.Record] writes events to a file, [Reader] reads them back, and [Play] does
// something with each at the time at which it happened, at any speed. The command is
// zdev tap and zdev replay.
//
// # Design
//
// tap.go copies what the proxy shows it (sockets.ProxyOptions.Observe) to the queue of
// each observer, observer.go: one buffer that the proxy appends to, and one that the
// observer reads, which are exchanged. What is in them are records as they are in a
// file (record.go), so recording copies nothing again. event.go says what the frames of
// a message mean, from the types of the two sockets. player.go keeps time.
//
// docs/ESPRESSO.md has a picture, the format of the file, and says what is guaranteed
// and what is not.
package espresso
