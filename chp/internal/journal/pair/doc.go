// Package pair is the journal of the active server of a pair: a batch is committed when the
// other server has it, too, while that one keeps up.
//
// It stands on the local journal of the server, on disk or not (see package journal). It has
// no goroutine, clock or connection: what the other server says and the looks at it are calls,
// and what to send next is an answer. So a transcript in testdata is all that happens.
//
// The owner's mutex guards all of it.
package pair
