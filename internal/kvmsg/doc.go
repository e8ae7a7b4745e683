// Package kvmsg implements the key-value message of CHP (RFC 12) in wire form: reading,
// checking, making canonical and writing it, its properties, the hash of its key, and
// the reasons for refusing it.
//
// A message from the wire goes through [Inspect] once. From then on it is a [Record],
// whose parts are found without further checks.
package kvmsg
