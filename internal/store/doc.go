// Package store is the map of CHP servers and clients: a log of records in wire
// form, and an index into it.
//
// A [Map] has one writer at a time and any number of readers, which take no lock.
// The comment on [Map] has the invariants; those at the top of rcu.go, index.go,
// cut.go and compact.go explain them.
package store
