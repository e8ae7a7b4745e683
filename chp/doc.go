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
// A key has 1 to 255 octets without NUL; it is not KTHXBAI and does not begin
// with HUGZ, which belong to the protocol. A value has at least one octet: an
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
// The protocol has no security: see [ServerOptions.Host].
//
// docs/DESIGN.md has the data path, the ownership of octets, the goroutines and
// the locks.
package chp
