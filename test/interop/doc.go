// Package interop has tests of package sockets with libzmq at the other end: every socket
// type both ways round, security, transports, and what happens when either end goes. The
// programs at the other end are in internal/interop. Without libzmq the tests are skipped,
// unless $CLUSTERMAP_REQUIRE_INTEROP is set.
package interop
