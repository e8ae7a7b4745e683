// Package wire knows how peers of CHP differ on the wire: what a server or a client of
// this module announces, the control messages that only those exchange, and what other
// implementations need.
//
// The rest of chp handles records: key-value messages of five frames (internal/kvmsg).
// A [Dialect] says how a Clone model differs, and converts messages where they enter and
// leave the sockets: NewCollector, NewPublisher and ParseRequest on a server, a [Session]
// on a client. [Early] keeps the updates that clients of other implementations send to
// both servers of a pair.
//
// A request for a snapshot and the form of its answer are a [Want].
package wire
