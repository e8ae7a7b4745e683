// Package link makes connections and moves bytes over them: the syntax of endpoints,
// binding and dialling by transport, and a connection's input and output. It knows
// nothing of ZMTP, messages or sockets.
//
// To add a transport, write a file with its three functions, and list them in
// transports. See docs/DESIGN.md.
package link
