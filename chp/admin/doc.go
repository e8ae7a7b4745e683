// Package admin is the HTTP side of a server of the Clustered Hashmap Protocol, for those who
// operate it: metrics for Prometheus, checks for whatever starts and stops servers, and the
// server's status. "chp serve --http" listens with it; a program that embeds a server mounts a
// [Handler] in a mux of its own, or registers [NewServerCollector] and [NewClientCollector] in
// a registry of its own.
//
//	GET /metrics  the metrics, in Prometheus' text format or OpenMetrics
//	GET /livez    200 while the server answers at all; otherwise it should be restarted
//	GET /readyz   200 while the server can serve clients, or follows the one that does
//	GET /status   a StatusJSON, as "chp status --json" prints it
//	GET /clients  a ClientsJSON: who is connected
//
// The two checks answer 503 with the names of the checks that failed, and why; with the query
// ?verbose they answer with all checks.
//
// Everything here only reads. The names and units of metrics, of checks and of the fields of
// the status stay what they are within a major version; there may be more. No label has a value
// that a peer chooses, so there is a fixed number of series.
//
// A browser that is on the same network as the server can be led to it by a page of somebody
// else, whose name its owner lets point to the server (DNS rebinding). So a Handler answers only
// requests whose Host is an IP address, localhost or in [Options.Hosts].
//
// The package depends on Prometheus' client library; package chp does not depend on it.
package admin
