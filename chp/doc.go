// Package chp is the Clustered Hashmap Protocol (RFC 12/CHP): one key-value map
// shared by a server and any number of clients.
//
// A [Server] owns the map. It takes updates from clients, gives each a sequence,
// publishes it to all, and sends snapshots to clients that join. A [Client]
// holds a replica of the map or of parts of it: it reads without a lock, writes
// through the server, and can [Client.Watch] what changes. A [Map] is the
// storage of both by itself, without a network.
//
// Servers and clients of the ZeroMQ Guide's Clone pattern, model 6, work with
// both sides. What goes beyond RFC 12 is offered only to peers that announce
// themselves as this package's, by the property X-CHP in their handshake.
//
// # Keys and values
//
// A key has 1 to 255 bytes without NUL; it is not KTHXBAI and does not begin
// with HUGZ, which belong to the protocol. A value has at least one byte: an
// update with an empty value deletes its key. An update can carry properties,
// of which "ttl", in seconds, ends the key's life. A subtree is "" (everything)
// or a slash, segments, and a slash: "/a/b/".
//
// # What is certain
//
// The server's order is the order at every client. A client's state is the
// server's at some sequence, and never a mixture: a client that may have missed
// something, because its connection broke or it fell behind and was
// disconnected, takes a new snapshot and swaps it in at once. [Client.Set] can
// lose an update with the connection; [Client.SetSync] and [Client.Flush] tell,
// and what they have reported is never sent again.
//
// Servers that are not of this package guarantee less. RFC 12 lets them drop
// updates, as libzmq does for a subscriber that is too slow, and does not ask for
// sequences without gaps. A client of the whole map takes a jump in the sequences
// for a loss: it takes a new snapshot, at once the first time and at most once a
// minute if jumps go on, for such a server may just count in steps. A loss at the
// end, with no update after it, shows by the sequence in the heartbeats of the
// guide's servers. A client of subtrees cannot see what it has lost at such a
// server: it may keep an old value until the next update of that key or the next
// snapshot.
//
// CHP itself has no security (RFC 12, Security): by default anyone who reaches the
// ports of a server can read and write everything. [ServerOptions.Security] and
// [ClientOptions.Security] add PLAIN, or CURVE, which encrypts all traffic. With
// CURVE the server lets in only the keys that Security.Authenticate accepts (see
// [clustermap/sockets.AllowKeys]); without Authenticate or a ZAP handler it lets in
// every client that knows its public key.
//
// docs/DESIGN.md has the data path, the ownership of bytes, the goroutines and
// the locks.
package chp
