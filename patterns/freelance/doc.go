// Package freelance implements the Freelance pattern of the ZeroMQ Guide (chapter 4)
// with the protocol of RFC 10 (FLP): clients send requests to one of several
// equivalent servers, without a broker.
//
// A [Client] connects to all of its servers. It sends a request to one of them, and to
// the next one if the connection ends or the server is silent. A [Server] executes
// requests with a [Handler], and answers pings while its handlers are busy.
//
// # Requests
//
// A request is sent over a connection at most once. The client sends it to another
// server if the connection ends, or if the server is silent or refuses the request. The
// first server may have executed it nevertheless, so requests should be idempotent or
// carry a number by which the application recognizes duplicates.
//
// A client that has just begun, or has just been given a server by [Client.Connect], waits
// for the first connection to that server before it sends requests to a later one, unless
// the attempt fails, and for a quarter of a second at most.
//
// A server is silent if neither a reply nor a PONG arrives from it during its share of
// the request's time: the time until the deadline, divided by the number of servers
// that have not been sent the request, and at most [ClientOptions].ServerTTL. The last
// server has all of the remaining time. The client pings the server during its share,
// so a slow server keeps its requests as long as it answers pings. With
// [ClientOptions].Hedge, the client also sends a slow request to another server.
//
// # Wire
//
// Clients and servers use ROUTER sockets. A server's identity is the endpoint to which
// clients connect. A ping is a single frame, PING; the answer is a single frame, PONG.
// A request is a control frame chosen by the client, and a body of one or more frames;
// the reply has the same control frame and a body of one or more frames. The control
// frame of a Client is the request's number in decimal digits.
//
// RFC 10 has no message for refusals. To a client that announces the property X-FLP in
// its handshake, as a Client does, a Server sends a message that begins with REFUSED:
// see docs/FREELANCE.md. Other clients get no reply.
//
// # Goroutines
//
// The goroutines of the connections handle all messages (hooks.Prepare).
// Each call of [Client.Request] decides by itself when to send its request to another
// server. A Client also has one goroutine for pings and one for each server. A Server
// has one goroutine for each handler that runs.
package freelance
