// Package timer holds the deadlines of keys with a time to live: millions of them, on a
// timing wheel.
//
// [Deadlines] has one deadline for each key, for all that need the remaining time. It is also
// where a server's expiry grace is ([Deadlines.Spare]), the time in which no key expires that
// it had before it became active. The grace
//
//   - is per key, not a pause of all expiry: an update that the server has accepted as the
//     active one has a sequence above those of the grace, and expires as always;
//   - is the same for all keys, not the shorter of it and the time to live. An owner needs the
//     time to reconnect, however often it refreshes its key; and a record from a checkpoint or
//     from the other server has only the rest of its time to live, so that the original one
//     may be unknown;
//   - changes no deadline when it begins, so it costs the same for any number of keys. A key
//     that is due before the end gets the end as its deadline when its turn in the wheel comes;
//   - counts in [Deadlines.Remaining], so everybody sees the time at which the key will in fact
//     be deleted. A passive server that received an update before its active one had a grace
//     has the update's own deadline; it does not use that before it leads, and then it has a
//     grace of its own.
package timer
