// Package kvmsg is the key-value message of CHP (RFC 12) in wire form: how it is
// read, checked, made canonical and written, its properties, the hash of its key,
// and the reasons for which it is refused.
//
// What comes from the wire goes through [Inspect] once. From then on it is a
// [Record], whose parts are found without further checks.
package kvmsg
