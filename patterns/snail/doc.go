// Package snail is the Suicidal Snail of the ZeroMQ Guide (chapter 5): a subscriber
// that notices when it falls behind its publisher, and acts on it instead of
// processing ever older data.
//
// A [Publisher] stamps its messages with the time, and with a sequence number if
// that is wanted. A [Subscriber] looks at each message when the application takes
// it: how old is it, and are messages missing before it. If one of the two is over
// its bound, it reports it, stops, or subscribes anew, as Options.Policy says.
//
// # Stamps
//
// A stamp is the wall clock in milliseconds since 1970 as decimal text, which is what
// the guide's C program sends as its only frame. Here it is the last frame of a
// message, so a message of the guide is a stamp without anything before it. With
// sequence numbers, the frame in front of the stamp is one, as decimal text.
//
// # Delay and clocks
//
// The delay of a message is the time of the subscriber's clock when the application
// takes it, minus the stamp. It includes the queues at both ends, the network, and
// the difference of the two clocks. See [Clocks] for what can be told without
// synchronised clocks, and what cannot.
//
// docs/SNAIL.md has a picture, the defaults, and the limits.
package snail
