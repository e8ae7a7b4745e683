// Package durable stores the log of a server on disk: it implements [commit.Log]. The
// server itself imports only package clustermap/chp/commit, so a program that embeds a
// server without a log does not import the dependency of this package: etcd's package fileutil,
// which locks, flushes and allocates files.
//
// A program that embeds a server passes the result of [Open] in chp.ServerOptions.Log:
// the server calls [Log.Replay], and closes the log when it ends. Only a program that uses a
// log without a server does that itself.
//
// The format of the segments is that of etcd's package wal (go.etcd.io/etcd/server/v3/storage/wal), with a
// checksum that runs through all records. Tests hold both ends to it. What differs:
//
//   - Writing, with the same bytes. etcd allocates each entry and copies it three times,
//     which took a quarter of the processor time of a log.
//   - Flushing. etcd flushes in every call that saves entries, with its lock held, and the
//     directory at each change of segments. Here [Log.Append] only writes and [Log.Sync]
//     flushes, so that a policy decides when, and a failed flush is permanent. What it
//     left in the system's cache is copied to new files by the next [Log.Replay].
//   - Reading. etcd allocates each entry, and returns the whole log as a slice. [Log.Replay] passes
//     one entry after the other, in the same memory. And etcd's package brings gRPC, protocol
//     buffers and Prometheus into a program: 15 MB.
//   - Distinguishing a torn end from damage. etcd considers an unreadable record torn
//     if one of its sectors is zero, and damaged otherwise. Here the log itself says
//     which entries were on disk: the first entries after a flush are written together
//     with a record with the flushed index. If a later record of this kind covers the
//     unreadable part, it is damage; otherwise it is the torn end of a write that was not
//     reported. This works across segments, so no flush is needed before a change of
//     segments. A file of its own has the flushed index as well, so that a log whose end
//     is missing, with the records, is damaged too.
//
// docs/DURABILITY.md describes the files.
package durable
