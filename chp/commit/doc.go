// Package commit is the interface between a server of the Clustered Hashmap Protocol
// and the log on disk that stores its updates.
//
// A [Log] stores entries; an [Entry] is a batch of updates in wire form. A [Group] is
// between the server, which appends batch after batch, and the log: it writes and
// flushes in its own goroutines, so that one flush serves all batches that arrived
// during the previous one, and the log is written at the same time. A [Policy] says
// when it flushes.
//
// The package imports only the standard library, so a program that embeds the server
// without a log does not import the libraries of one. Package clustermap/chp/durable is
// the log on disk.
package commit
