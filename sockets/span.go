package sockets

import "clustermap/internal/buf"

// Span is the place of one message in the bytes of a [Batch]. Its fields Start
// and End, of type uint32, are the half-open range of the message in
// [Batch.Wire].
//
// Its field Tag, of type uint64, is for use by [Options.Prepare], which runs in
// the goroutine that reads the connection. Prepare can store there what it
// computes from a message, such as a hash, so that the receiver of the batch
// need not touch the bytes again.
type Span = buf.Span
