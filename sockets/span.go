package sockets

import "clustermap/internal/buf"

// Span is one whole message inside the bytes of a [Batch]: the half-open range
// Start..End of [Batch.Wire], two fields of type uint32.
//
// Its third field, Tag, is a uint64 and free for [Options.Prepare], which runs in
// the goroutine that read the message: whatever it computes there (a hash, flags)
// is at hand for the receiver of the batch without touching the bytes again.
type Span = buf.Span
