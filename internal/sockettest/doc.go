// Package sockettest is shared by tests of sockets, inside package sockets and outside of it: a
// peer that a test plays byte by byte, in each version of ZMTP, and what many tests do with
// sockets. It does not import package sockets, whose own tests use it.
package sockettest
