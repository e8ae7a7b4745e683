// Package collect takes the updates of a server's clients: it checks them in the goroutines that
// read the connections, passes them to the order, and tells the clients what has become of them.
//
// It knows the clients by what their connections announce. So it refuses what a former
// connection of a client delivers late, and finds the connection on which to report: refusals,
// and the progress of updates that the client numbers.
package collect
