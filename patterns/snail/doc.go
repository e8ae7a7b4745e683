// Package snail implements the Suicidal Snail of the ZeroMQ Guide (chapter 5): a
// subscriber that detects when it falls behind its publisher, and reacts instead of
// processing old data.
//
// A [Publisher] adds the time, and optionally a sequence number, to its messages. A
// [Subscriber] checks each message when the application receives it: how old it is, and
// how many messages before it are missing. If either exceeds its limit, the Subscriber
// stops, reports it, or resubscribes, depending on Options.Policy.
//
// # Stamps
//
// A stamp is the wall clock in milliseconds since 1970 as decimal text. It is the last
// frame of a message; the guide's C program sends it as the only frame. With sequence
// numbers, the frame before the stamp is the number as decimal text.
//
// # Delay and clocks
//
// The delay of a message is the subscriber's clock when the application receives it,
// minus the stamp. It includes the queues at both ends, the network, and the difference
// of the two clocks. [Clocks] describes how to measure without synchronised clocks.
//
// docs/SNAIL.md has a diagram, the defaults, and the limits.
package snail
