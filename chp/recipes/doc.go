// Package recipes has what programs build on a map with conditions and times to live: a
// [Mutex], a [Semaphore], an [Election] and a [Pool] that shares shards among workers. It uses
// only the public interface of package chp.
//
//	client                              map
//	Lock --- SetIf(NAME/id, IfAbsent) -> /locks/nightly/3f09…  sequence 17: its ticket
//	                                     /locks/nightly/a1c4…  sequence 19: the next one
//
// Who wants a lock sets a key of its own below the lock's name. The sequence of that update is
// the key's ticket. The key with the lowest ticket is the holder's, or with a semaphore those with
// the lowest ones; the others wait, in the order in which they came. All keys of a Mutex, or another of these, are
// attached to one lease ([chp.Client.Grant]) while their program lives, whose renewals publish nothing; they end with it.
// The ticket is the fencing token: that of each holder is higher than that of all before.
//
// A watch of the keys says who is the next, and nothing asks again and again. A client does
// not need the server's word for that: no ticket lower than its own can appear after it.
//
// # What a lock promises
//
// At any moment, the map has one holder. A holder knows of its own loss before anybody else can
// have the lock, by its own clock: a tenth of the time to live before the server lets the lease
// end, [Lock.Done] is closed. But no program can check a lock and act in one step: it may be
// stopped in between, for longer than the time to live, and act when another holds the lock. Where that
// matters, the resource must reject what comes late:
//
//   - If it is in the same map, give [Lock.Held] as a condition to SetIf or ApplyIf. Then the server
//     judges it.
//   - Otherwise send [Lock.Token] with each request. The resource remembers the highest token that it has seen,
//     and rejects lower ones.
//
// A server that loses its map forgets locks and tokens; use a log on disk, a pair, or a
// cluster.
package recipes
