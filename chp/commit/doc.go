// Package commit is the border between a server of the Clustered Hashmap
// Protocol and what keeps its updates: a log on a disk, and later a second
// server or a quorum.
//
// A [Log] stores entries, and an [Entry] is a batch of updates in wire form.
// A [Group] stands between the server, which appends batch after batch, and the
// log: it writes and flushes in goroutines of its own, so that one flush
// serves all batches that came while the one before it ran, and the disk is
// written to meanwhile.
// A [Policy] says when it flushes.
//
// The package needs nothing beside the standard library, and so a program that
// embeds the server does not get the libraries of a log that it does not use.
// The log on a disk is package clustermap/chp/durable.
package commit
