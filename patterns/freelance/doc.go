// Package freelance is the Freelance pattern of the ZeroMQ Guide (chapter 4), with
// the protocol of RFC 10 (FLP): clients send requests to one of several equal
// servers, without a broker between them.
//
// A [Client] is connected to all servers that it knows. It sends each request to
// one of them, and to the next one when that server's connection ends, or when
// nothing is heard from it. A [Server] answers requests with a [Handler], and pings
// while its handlers are busy.
//
// # Requests
//
// A request goes over one connection at most once. It is sent again, to another
// server, only when the first one has lost its connection, is silent, or refuses
// it. The first server may have executed it nevertheless: requests should be
// idempotent, or carry a number by which the application finds duplicates.
//
// A server is silent for a request when nothing came from it, no reply and no
// PONG, for its share of the time: what is left until the deadline, divided by the
// number of servers that the request has not been sent to, and at most
// [ClientOptions].ServerTTL. The client pings the server in that time, so one that
// works slowly keeps its requests as long as it answers pings. With
// [ClientOptions].Hedge a request that takes long goes to another server too.
//
// # Wire
//
// Clients and servers use ROUTER sockets. A server's identity is the endpoint that
// clients connect to. A ping is one frame, PING, and its answer one frame, PONG. A
// request is a control frame, which is the client's choice, and at least one frame
// of body; the reply is the same control frame and at least one frame of body. The
// Client's control frame is the number of the request in decimal digits.
//
// RFC 10 cannot say that a request is refused. A Server tells a Client of this
// package, which it knows by the property X-FLP of the handshake, in a message that
// begins with REFUSED: see docs/FREELANCE.md. Other clients get no reply.
//
// # Goroutines
//
// Messages are handled in the goroutines of their connections (Prepare of
// sockets.Options). Each call of [Client.Request] decides itself when to send the
// request to another server; beside these there are one goroutine that pings, and
// one for each server. A Server has one goroutine for each handler that runs at
// once.
package freelance
