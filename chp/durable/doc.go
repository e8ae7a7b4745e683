// Package durable keeps the log of a server on disk: it implements
// [commit.Log]. The server itself knows only package clustermap/chp/commit, so that a
// program that embeds it without a disk does not import what this package
// needs: package wal of etcd (go.etcd.io/etcd/server/v3/storage/wal), with its segments,
// checksums and preallocation, and its entries of go.etcd.io/raft/v3.
//
// What etcd does: the format of the segments, a checksum that runs through
// all records, a preallocated next segment, the change of segments. What this
// package does itself, and why:
//
//   - Flushing. etcd flushes in every call that saves entries, while its lock is held.
//     Here [Log.Append] only writes and [Log.Sync] flushes, so that a policy
//     decides when, and a failing flush is final.
//   - Reading. etcd returns the whole log as a slice. [Log.Replay] passes entry
//     after entry.
//   - Telling a torn end from damage. etcd takes an unreadable record for torn
//     if one of its sectors is zero, and for damage otherwise. Here the log itself
//     says what was on the disk: with the first entries after a flush goes a record
//     of the index that was flushed. If what cannot be read is covered by a later such
//     record, it is damage, and else it is the torn end of a write that nobody was
//     told about. This holds across segments, so no flush is needed before a
//     segment is changed.
//
// docs/DURABILITY.md tells what is on the disk.
package durable
