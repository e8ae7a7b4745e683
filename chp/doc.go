// Package chp implements the Clustered Hashmap Protocol (RFC 12/CHP): one key-value map
// that a server shares with any number of clients.
//
// A [Server] owns the map. It accepts updates from clients, gives each a sequence
// number, publishes it to all clients, and sends snapshots to clients that join. A
// [Client] holds a replica of the map, or of parts of it. It reads without a lock,
// writes through the server, and reports changes with [Client.Watch]. A [Map] is the
// storage of both, without a network.
//
// Servers and clients interoperate with those of the ZeroMQ Guide's Clone pattern,
// model 6. A peer of this package announces itself by the property X-CHP in its
// handshake; extensions of RFC 12 are used only with such peers.
//
// # Keys and values
//
// A key has 1 to 255 bytes without NUL. The protocol reserves KTHXBAI and all keys that
// begin with HUGZ. A value has at least one byte: an update with an empty value deletes
// its key. An update can carry properties; the property "ttl" is the key's time to live
// in seconds. A subtree is "" (the whole map), or segments between slashes, such as
// "/a/b/".
//
// # Consistency
//
// All clients apply updates in the server's order. A client's state is always the
// server's state at one sequence, never a mix of two. When a client may have missed an
// update, because its connection broke or the server disconnected it for being too
// slow, it fetches a new snapshot and replaces its state atomically. [Client.Set] can
// lose an update when the connection breaks. [Client.SetSync] and [Client.Flush] report
// the outcome; an update that they have reported is never sent again.
//
// Servers of other implementations guarantee less. RFC 12 allows them to drop updates,
// as libzmq does for a slow subscriber, and does not require consecutive sequences. A
// client of the whole map treats a jump in the sequences as a loss and fetches a new
// snapshot. It does so at once the first time; if the jumps continue, it waits longer
// each time, up to a minute, because the server may simply count in steps. If the last
// update before a pause is lost, the sequence in the heartbeats of the guide's servers
// shows it. A client of subtrees cannot detect lost updates of such a server: it may
// keep an old value until the next update of that key or the next snapshot.
//
// # Security
//
// CHP itself has no security (RFC 12, Security): by default anyone who can connect to a
// server can read and write the whole map. [ServerOptions.Security] and
// [ClientOptions.Security] select PLAIN, or CURVE, which encrypts all traffic. With
// CURVE the server accepts only the keys that Security.Authenticate accepts (see
// [clustermap/sockets.AllowKeys]). Without Authenticate or a ZAP handler it accepts
// every client that knows its public key.
//
// docs/DESIGN.md describes the data path, the ownership of bytes, the goroutines and
// the locks.
package chp
