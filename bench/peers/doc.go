// Package peers runs other people's libraries beside clustermap, in one process
// and in turns, and reports the ratio. It is a module of its own so that users of
// clustermap do not depend on them.
//
//	cd bench/peers && go test -bench .
//
// For sockets there is the command compare, with either end in a process of its
// own:
//
//	cd bench/peers && go run ./cmd/compare
//
// The command kv does the same for CHP and other systems that replicate keys and values.
package peers
