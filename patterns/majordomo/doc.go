// Package majordomo implements the Majordomo pattern of the ZeroMQ Guide (chapter 4): a
// [Broker] passes the requests of clients to workers, which register for a service by
// name. A [Worker] serves a service, a [Client] sends requests.
//
// The package speaks both versions of the Majordomo Protocol, MDP/0.1 (RFC 7) and
// MDP/0.2 (RFC 18), at the same endpoints, and the Majordomo Management Interface (RFC
// 8). So each of the three can be a program of the guide instead. docs/MAJORDOMO.md has a
// diagram, and the guarantees and limits.
//
// # Design
//
// wire.go encodes and decodes messages. One mutex guards the state of a broker.
// broker.go handles the messages of peers batch by batch, and sends all resulting
// messages to each peer at once; a clock expires requests and workers. request.go has
// the requests and their queues, service.go the choice of workers, roster.go the workers,
// mmi.go the broker's management services. worker.go keeps a worker connected;
// session.go is one of its connections. client.go sends requests until there is a reply;
// link.go is one of its connections. connection.go is what both connections have in
// common. extension.go has the extensions of this package.
package majordomo
