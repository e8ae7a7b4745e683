// Package majordomo is the Majordomo pattern of the ZeroMQ Guide (chapter 4): a
// broker that gives the requests of clients to workers, which register by the name
// of their service.
//
// It speaks the Majordomo Protocol in both versions, MDP/0.1 (RFC 7) and MDP/0.2
// (RFC 18), at the same endpoints, and the Majordomo Management Interface (RFC 8), so
// programs of the guide can take each of the three parts: [Broker], [Worker] and
// [Client]. docs/MAJORDOMO.md has a picture, and says what is guaranteed and what is
// not.
//
// # Design
//
// wire.go takes messages apart and makes them. The state of a broker belongs to one
// mutex: broker.go takes what peers sent, batch by batch, stages what follows from it
// for each peer, and sends that in one go; a clock expires requests and workers.
// request.go has the requests and how they wait, service.go how they are given to
// workers, roster.go the workers, mmi.go the broker's own services. worker.go keeps a
// worker connected; session.go is one of its connections. client.go sends requests
// until there is a reply; link.go is one of its connections. extension.go has what
// peers of this package do beyond the RFCs.
package majordomo
