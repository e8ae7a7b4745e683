// Package sockets provides ZeroMQ sockets in pure Go. They send and receive
// whole messages over TCP, over Unix domain sockets and within a process, to
// any number of peers, and reconnect by themselves.
//
// They speak ZMTP 3.1 (RFC 37) and fall back to ZMTP 3.0, 2.0 and 1.0, so they
// interoperate with programs that use libzmq over tcp and ipc, with NULL, PLAIN or CURVE.
// libzmq's draft types, its other transports and GSSAPI are not supported.
//
// # A first program
//
// One side binds to an endpoint and receives; the other connects to it and
// sends:
//
//	pull, err := sockets.NewPull(sockets.Options{})
//	if err != nil {
//		return err
//	}
//	defer pull.Close()
//	if err := pull.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
//		return err
//	}
//
//	push, err := sockets.NewPush(sockets.Options{})
//	if err != nil {
//		return err
//	}
//	defer push.Close()
//	if err := push.Connect(pull.LastEndpoint()); err != nil {
//		return err
//	}
//	if err := push.Send(ctx, []byte("job"), []byte("1")); err != nil {
//		return err
//	}
//	message, err := pull.Recv(ctx)
//	if err != nil {
//		return err
//	}
//	fmt.Printf("%s %s\n", message[0], message[1])
//
// # Socket types
//
// The type of a socket decides to which peers a message goes, and which types
// can be its peers:
//
//	Push, Pull      each message goes to one of the peers, in turn
//	Pub, Sub        each message goes to all peers that subscribed to its topic
//	XPub, XSub      as Pub and Sub, and subscriptions can be received and sent
//	Req, Rep        a request to one of the peers, in turn, and its reply
//	Dealer          sends as Push, and receives from all peers; the other side
//	                of Rep and Router for many requests at a time
//	Router          receives from all peers, and sends to the peer that is named
//	                by the first frame, or by Router.SendTo
//	Pair            a single peer
//	Stream          raw TCP: bytes to and from peers that do not speak ZMTP
//
// All of them implement [Socket]. All but Sub and Pull implement [Sender], and
// all but Pub and Push [Receiver]. All methods are safe for concurrent use.
//
// # Endpoints
//
// A socket can bind to and connect to any number of endpoints, in any order:
// tcp://host:port, ipc://path, or inproc://name within a process (see
// [Inproc]). Bind returns when the socket listens. Connect returns at once: the
// socket connects in the background, and again if the connection is lost, after a
// wait ([Options].ReconnectInterval). Types that send to any of their peers keep
// messages for the peer meanwhile. So it does not matter which side starts first,
// except that a Pub drops messages without a subscriber, and that a Router cannot
// address a peer that it has not seen; see [Pub.WaitSubscribers], [Sub.WaitSubscribed]
// and [Router.WaitPeers].
//
// Close waits for messages that peers still take; see [Options].Linger.
//
// # Messages
//
// A message is one or more frames of bytes, and is sent and received as a
// whole. Send takes the frames, and copies the parts of them that it keeps. For a Pub the
// first frame begins with the topic; for a Router it is the identity of the peer.
//
// There are four ways to receive. Recv returns a [Message], which the caller
// owns. RecvInto fills a Message of the caller, whose memory it uses again. Messages returns an
// iterator for a loop whose body sees each message for as long as it runs; it
// copies nothing and, once buffers have been pooled, allocates nothing. RecvBatch and the iterator Batches do the same with a
// [Batch] of messages from one peer, which are in wire form; see
// [zmtp.WireMessage]. To send very many small messages, put a [Writer] before
// the socket.
//
// # Contexts and waiting
//
// Every method that may wait takes a context, except Close, whose wait
// [Options].Linger limits; CloseContext takes one. Send and receive methods check
// the context only when they have to wait: if they can complete at once they do
// so, even if the context is done. A loop that must stop when its context is
// done should therefore also check ctx.Err. TrySend and TryRecv do not wait but
// return [ErrWouldBlock]. To wait for several sockets, use a [Poller], or the
// channel of Readable in a select statement.
//
// That a peer cannot be reached, or refuses the connection, is no error of these
// methods: the socket tries again. Meanwhile messages wait in its queue, unless its type
// drops what no peer has asked for (Pub, XPub) or addresses the peer (Router, Stream).
// Endpoints reports why the last attempt failed, the error of WaitPeers
// includes it, and [Options].Monitor receives an event for each attempt.
//
// # Options
//
// A constructor takes [Options], whose zero value is ready to use: the zero
// value of each field selects its default. Fields that do not apply to the
// socket type, and invalid values, are refused; the error joins an
// [*OptionError] for each. The file docs/OPTIONS.md lists all fields with the
// types that use them and with libzmq's names and numbers.
//
// # Limits
//
// By default every queue is limited in messages and in bytes, and all queues of a
// socket together in bytes. When a receive queue reaches
// its high-water mark, the socket stops reading from that peer, and the peer in
// turn has to wait. When a send queue reaches its high-water mark, the socket
// waits, drops the message, or disconnects the peer, depending on the socket
// type and on [Options].FullPolicy. The socket never allocates memory by a size
// that a peer has only announced.
//
// # Security and monitoring
//
// The security mechanisms are NULL, PLAIN and CURVE; see [Security]. An
// [Authenticator] decides which peers are accepted. [Options].Monitor receives
// the [Event] of each connection, and Peers returns counters of each.
//
// # Performance
//
// Sockets read, decode, queue and write messages in batches, so the cost of
// system calls, locks, wake-ups and counters is paid once per batch. The file
// docs/DESIGN.md describes the path of a message and the ownership of buffers.
package sockets
