// Package libzmq has tests of package sockets that say the same as libzmq's own tests of the like
// names. The table in docs/CONFORMANCE.md names those of each of libzmq's tests.
package libzmq
