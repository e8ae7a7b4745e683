// Package chaos has tests only. They run servers as processes, some twenty
// replicas and a number of writers, inject faults of every kind, and check
// afterwards that no promise of package chp was broken:
//
//	go test ./test/chaos                             # some seconds
//	go test ./test/chaos -faults 500 -seed 7 -v      # as long as you like
//	go test ./test/chaos -run 'TestChaos/^memory$' -faults 100 -longest 5s
//	go test ./test/chaos -run 'TestChaos/^pair$' -faults 20 -only kill,stop
//	go test ./test/chaos -run 'TestChaos/^cluster$' -faults 2000 -timeout 1h
//
// There is a test for each shape of a cluster: memory (one server, whose map is gone
// when it ends), data (one that keeps it on disk: --sync always), pair (two in memory),
// pair-data (two with disks), pair-split (two that lose sight of each other at times,
// so that both can be active: then only the equality of all replicas in the end is
// checked), and cluster (three nodes of a cluster).
//
// # Faults
//
// Each replica reaches each server through TCP proxies of its own, which cut,
// reset, hold, delay and half-close its connections, deliver the messages of a former
// client late, and leave out updates as a forwarder of libzmq does with a slow
// subscriber. Servers are killed with SIGKILL, stopped with SIGSTOP and started again,
// with their data or without them; of a pair one at a time, and only while the other one
// has everything. Of a cluster any of the three are killed or stopped at once; nodes do not hear
// each other, in one direction or both, for a while or in turns; the files of a node that was killed are
// damaged; and a node is removed, in whose place a new one joins. Replicas are closed and made anew. With -seed the same faults come in
// the same order; the state in which they meet the cluster depends on the machine.
//
// # Checks
//
// When everything is healed:
//
//   - every replica has the server's map, for its subtrees, and its watch has reported
//     exactly that;
//   - the history of each key is linearizable in the order of the sequences that
//     SetSync and DeleteSync returned, with the outcome of some calls unknown: so
//     no acknowledged update is lost and no deleted key comes back (package
//     porcupine decides that);
//   - an update has one sequence in every report of it: nothing was applied twice, and
//     all replicas saw the same;
//   - the sequences that a watch reports rise, and between two of them no update
//     is missing unless the client took a new snapshot meanwhile;
//   - a watch is ordered, unique, reliable, atomic, resumable and bookmarkable, by these names (see
//     docs/CONSISTENCY.md): that of each replica, and those of programs that watch for a while, stop, and
//     go on after the last sequence that they have seen, also after their client was replaced;
//   - the updates of one goroutine are applied in the order in which it made them;
//   - a client reads the values that it has written, or later ones;
//   - no key expires before its time, and none that has no time to live;
//   - no server ended by itself.
//
// Some goroutines change keys of their own under conditions: they move amounts between
// accounts in transactions, add to counters (Add, and SetIf with the sequence or the value that was
// there), create keys that others create too, and take and release a lock. Of those:
//
//   - the history of each key is linearizable as that of a register with compare-and-set, in
//     which a conflict is a read of what was there (linearizable);
//   - an update that was made has a sequence of its own, and one that met a conflict was
//     never made (exact, acknowledged);
//   - what a conflict reports was there (conflict), and the replica shows it (read your
//     conflicts);
//   - the sum of all accounts is the same in each replica at every moment, and whenever a watch has
//     reported what was queued; the updates of a transaction have consecutive sequences, and
//     events name it (transaction);
//   - nobody takes a lock while another one holds it, and the tokens rise (exclusion).
//
// TestReturn runs sequences in which the servers of a pair are apart: one of them goes on
// alone, starts again several times without hearing the other one, expires keys, is cut off
// from everybody, or comes back with its data or without. It checks that an acknowledged
// update is discarded only where both servers had accepted updates apart, or one had lost its
// data before it accepted any, and is reported then.
// TestReturnSchedules does so with schedules in which they are apart several times, at
// random; with -seed it runs the schedule of that seed:
//
//	go test ./test/chaos -run TestReturnSchedules -seed 8 -v
//
// When a check fails the test prints the seed and the faults, and writes the
// history to a file (flag -history).
//
// With the build tag mutate a safeguard of package chp can be switched off (see
// package mutate). TestMutations does so with each of them and demands that the
// checks notice it:
//
//	go test -tags mutate ./test/chaos -run TestMutations -v
package chaos
