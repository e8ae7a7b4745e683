// Package disk is the journal of a server with a log on disk ([clustermap/chp/commit]): what
// the entries of that log are, how a map is filled from them, and when they are committed.
//
// A batch of updates is one entry, with the updates as they are published, so the log can be
// replayed like the messages of a server. With the policy Always it is committed when it is
// flushed, and otherwise as soon as the log has taken it.
package disk
