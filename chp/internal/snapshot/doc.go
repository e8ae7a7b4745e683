// Package snapshot sends clients the part of the map that they request: the server's side
// of joining (RFC 12, State Synchronization).
//
// A [Server] takes cuts of a [Source], encodes them in parcels, which clients that join
// together share, and lends the parcels to connections. What all clients together can hold
// of its memory is bounded: see Options.Memory.
package snapshot
