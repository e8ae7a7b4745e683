// Package ledger keeps account of the updates of each client, so that each is applied
// once, however often it is sent.
//
// A client numbers its updates, and sends those again that a connection may have lost. A
// server accepts each number once ([Clients]), and tells the client how far it has come
// ([Reply]). The package does no input or output.
//
// Over one connection numbers arrive in order, and each session begins no later than the
// server's counter. So even if old connections deliver updates late, the server applies all
// numbers up to its counter, each once, and needs no list of UUIDs.
//
//   - A reply acknowledges: it says up to where all is published, and where the client's last
//     updates are in the server's order, in runs of consecutive sequences. What it reports is
//     settled when the replica has come to that sequence. A client asks for a reply when
//     something waits for its updates (Asks) or for their memory; in a stream the server
//     replies after each quarter of its SendQueue.
//   - Other implementations, and servers that send no runs, do not acknowledge. There a client
//     finds its updates among the KVPUBs by their UUIDs. One that was applied late, after the
//     reply and before the snapshot, is settled by a later reply and two HUGZ.
//   - A number that the server skipped, because it refused the update, does not count as
//     applied: it is in the ranges that a reply names. Of too many ranges the oldest are merged
//     into one of which only some were refused, and those updates are uncertain.
//   - A server that knows too many clients forgets the one that has not written for the longest
//     time. A reply carries the highest sequence at which that can have happened, so a client
//     knows whether it is unknown because it is new.
//   - With another map, which has another identity, and at servers that do not report progress,
//     all updates that were sent are uncertain and dropped. So an update is never sent again
//     after it was reported as applied or uncertain. One that was refused can be: the next
//     server of a pair may not know of the refusal, and accept it.
package ledger
