// Package titanic is the Titanic pattern of the ZeroMQ Guide (chapter 4, RFC 9): requests
// that are kept on disk until a worker has answered them, and their replies until the client
// has fetched them. Client, server and worker need not run at the same time.
//
// A [Server] is a worker of three services at a Majordomo broker, and a client of all
// others:
//
//   - titanic.request stores a request for a service, and answers with its UUID.
//   - titanic.reply answers with the reply, if there is one.
//   - titanic.close deletes both.
//
// A [Client] uses them; so do the programs of the guide. Workers are usual workers
// of Majordomo, and know nothing of it.
//
// # Guarantees
//
// A request that was acknowledged with 200 is on the disk: it survives the end of the
// process and of the machine at any instant, and is executed until a worker has answered,
// its time to live is over, or the client closes it. The same holds for a reply that a client
// has seen, and for a close that was acknowledged.
//
// A request is executed at least once. It is executed again if the server ends, or the
// attempt times out, between the worker's reply and its arrival on the disk. So workers
// should be idempotent. No request is executed that is not on the disk.
//
// docs/TITANIC.md has a picture, and says what is not guaranteed.
package titanic
