// Package link makes connections and moves bytes over them. It parses endpoints,
// listens and dials, and reads and writes. It knows nothing of ZMTP, messages or
// sockets.
//
// To add a transport, write a file with its three functions, and list them in
// transports. See docs/DESIGN.md.
package link
