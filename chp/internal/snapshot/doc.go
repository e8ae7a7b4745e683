// Package snapshot sends clients the part of the map that they request: the server's side
// of joining (RFC 12, State Synchronization).
//
// A [Server] takes cuts of a map that is published, encodes them in parcels, which clients that join
// together share, and lends the parcels to connections.
//
// # What bounds the memory
//
// For all clients together:
//
//   - Parcels: Options.Memory, three quarters for those of up to 128 KiB and a quarter for
//     larger values. Claims are granted in order. A client may hold no more than its window,
//     which adapts to how fast it reads, and no more than its share of the free memory: all
//     clients together get half of it. So clients that do not read leave memory for
//     newcomers, in ever smaller parcels, down to one of 4 KiB per client. With the default it
//     takes about ten thousand such clients, each with bytes of its own, before a newcomer has
//     to wait, and then only until they are disconnected. Clients of this module are sent large
//     records, and runs of others that follow each other, directly from the log, which
//     needs no memory.
//   - Pins: segments that only cuts still hold, and their liveness maps, may be as large as
//     twice the log and Options.Memory. Beyond that the cut that was not read for the longest
//     time is dropped, and its clients are disconnected.
//   - Time: a client that has read nothing for Options.Timeout is disconnected. Only its own
//     time counts: while it waits for memory and has nothing to read, the clock stops. During
//     each wait of a client its own progress is watched, so no two clients can wait for each
//     other.
package snapshot
