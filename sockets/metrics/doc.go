// Package metrics shows the counters of sockets to Prometheus: an application registers a
// [NewCollector] for each of its sockets in its own registry. Messages cost nothing more for it;
// counters are read when they are asked for.
//
// The names and units of the metrics stay what they are within a major version; there may be more.
// Their only label is the name that the application gives the socket.
//
// The package depends on Prometheus' client library; package sockets does not depend on it.
package metrics
