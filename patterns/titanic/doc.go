// Package titanic implements the Titanic pattern of the ZeroMQ Guide (chapter 4, RFC 9):
// requests are stored on disk until a worker has executed them, and replies until
// [Client.Discard] deletes them or Options.ReplyTTL has passed. Client, server and worker need not run at the same time.
//
// A [Server] is a worker for three services at a Majordomo broker, and a client of all
// other services:
//
//   - titanic.request stores a request for a service, and returns its UUID.
//   - titanic.reply returns the reply, if there is one.
//   - titanic.close deletes both.
//
// A [Client] uses these services; so can programs of the guide. The requests are executed
// by ordinary Majordomo workers.
//
// # Guarantees
//
// A request that was acknowledged with 200 is on disk. It survives a crash of the process
// or the machine at any instant, and is executed until a worker has replied, it expires,
// or the client closes it. A reply that a client has fetched, and an acknowledged close,
// are on disk too.
//
// A request is executed at least once. It is executed again if the server crashes, or the
// attempt times out, before the worker's reply is on disk, so workers should be
// idempotent. A request is not executed before it is on disk.
//
// docs/TITANIC.md has a diagram, and lists the guarantees and their limits.
package titanic
