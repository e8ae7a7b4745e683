// Package chp implements the Clustered Hashmap Protocol (RFC 12/CHP): one key-value map
// that a server shares with any number of clients.
//
// A [Server] owns the map. It accepts updates, gives each a sequence number, publishes
// it to all clients, and sends snapshots to clients that join. A [Client] holds a
// replica of the map, or of parts of it, and writes through the server. A [Map] is the
// storage of both, without a network.
//
// # A server in a program
//
// A program can hold the map itself. This server listens on the ports 5556 to 5558 of the
// loopback interface:
//
//	s, err := chp.NewServer(chp.ServerOptions{Host: "127.0.0.1", Port: 5556})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	if err := s.Listen(ctx); err != nil { // such as a port in use
//		return err
//	}
//	ended := make(chan error, 1)
//	go func() { ended <- s.Serve(ctx) }()
//	if err := s.Set(ctx, "/config/colour", []byte("red")); err != nil {
//		return err
//	}
//	return <-ended // nil when ctx has ended
//
// and other programs follow it:
//
//	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{"tcp://127.0.0.1:5556"}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	if err := c.WaitActive(ctx); err != nil {
//		return err
//	}
//	colour, ok := c.Get("/config/colour")
//
// Besides tcp, servers and clients of one machine can use ipc, and those of one process
// inproc: see [ServerOptions.Endpoints].
//
// # The same methods on both
//
// Server and Client have these methods, with the same meaning:
//
//   - Get, Lookup, Range, All, Prefix and Sorted read the map or the replica, without the
//     network. Get takes no lock.
//   - Set, Delete and Apply make updates, and wait only while there is no room for more.
//   - SetSync and DeleteSync make an update and wait until it is published (on a client:
//     until the replica has it). Flush waits for all updates that were made before (on a
//     client: to keys of its subtrees).
//   - Watch reports the present keys and then every change, in order. Event.Cause tells a
//     deletion from the end of a time to live: CauseDeleted, CauseExpired.
//
// A method of a client goes through its server, and waits until it follows one. A method
// of a server takes effect in its own process, by the same rules as an update of a
// client; on a server of a pair that is not the active one, updates fail with ErrStandby.
//
// Servers and clients interoperate with those of the ZeroMQ Guide's Clone pattern,
// model 6. A peer of this package announces itself by the property X-CHP in its
// handshake; extensions of RFC 12 are used only with such peers. Every peer gets the
// property cause=expired in the deletion of a key whose time to live has ended: the RFC
// allows properties in every update. docs/PYTHON.md has a reader and a writer in Python.
//
// # Keys and values
//
// A key has 1 to 255 bytes without NUL. The protocol reserves KTHXBAI and all keys that
// begin with HUGZ. A value has at least one byte: an update with an empty value deletes
// its key. An update can carry properties; the property "ttl" is the key's time to live
// in seconds. A subtree is "" (the whole map), or segments between slashes, such as
// "/a/b/".
//
// # Reading, writing and watching
//
// [Client.Get] returns a value. [Client.Lookup] also returns its sequence and its time to
// live, and tells an absent key from one that the client does not replicate. [Client.All],
// [Client.Prefix] and [Client.Sorted] are iterators over a consistent state.
//
// [Client.Set], [Client.Delete], and [Client.Apply] for a [Batch] of many updates, return
// when the updates are queued. [Client.SetSync] and [Client.Flush] wait until they were
// applied. [Client.KeepAlive] keeps a key in the map for as long as the program lives.
//
// [Client.Watch] reports every change. A [View] has a subtree as Go values, decoded once for
// each change, and calls back. Both work with a server in the same process, too.
// [Client.WaitActive] waits for a server; its error gives the reason if no server is active.
//
// # Consistency
//
// All clients apply updates in the server's order. A client's state is always the
// server's state at one sequence, never a mix of two; a client whose three connections
// reach different servers of this package gets a [MixedError]. When a client may have missed an
// update, because its connection broke or the server disconnected it for being too
// slow, it fetches a new snapshot and replaces its state atomically.
//
// When the connection breaks, the client sends the updates of [Client.Set] again that
// the server may not have applied, and the server applies each once. An update that was
// sent can be lost on the way only if the client then follows a server of another
// implementation, one with another map (for example restarted without its data), or one
// that has forgotten this client's progress after updates of 65,536 others.
// [Client.SetSync] and [Client.Flush] report the outcome. An update that they have
// reported as applied or uncertain is never sent again; one that a server of a pair has
// refused may be sent to the one that takes over, and accepted there.
//
// Servers of other implementations guarantee less. They do not say who they are, so several
// behind one address can be mixed. RFC 12 allows them to drop updates,
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
// CHP itself has no security (RFC 12, Security): by default every client that can connect
// to a server can read and write the whole map. [ServerOptions.Security] and
// [ClientOptions.Security] select PLAIN, or CURVE, which encrypts all traffic. With CURVE
// the server accepts only the keys that Security.Authenticate accepts (see
// [clustermap/sockets.AllowKeys]). Without Authenticate or a ZAP handler it accepts every
// client that knows its public key. [ServerOptions.Access] says what each client may do
// (docs/ACCESS.md).
//
// docs/DESIGN.md describes the data path, the ownership of bytes, the goroutines and
// the locks.
package chp
