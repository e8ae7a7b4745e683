// Package member is what makes a server a node of a cluster, beside its journal (chp/internal/journal/raft).
//
// All nodes have the same log, and so the same map with the same sequences, and serve clients alike: snapshots, updates,
// reads. The leader orders updates. What clients send to another node is relayed to it.
//
//	Member   is told what is committed, and who leads (raft.Owner)
//	relay    what clients have sent to this node, until the leader has said what became of it
//	orders   what nodes relay to this one while it leads
//	asks     clients that want the map: they get it when this node has all that was committed before they asked
//
// # Exactly once
//
// A client numbers its updates and requests, and so does a node the updates of those that do not. All nodes know which
// numbers are in the map, since entries say so. So a relay sends again whatever it has no answer for: to the next leader, and to
// this one if nothing is heard for a while.
//
// Notes between nodes may get lost. A relay numbers its items in a stream, of which the leader takes no item before
// the one in front of it: an update that is missing between two others would count as refused. A stream ends with the
// term: a note that comes late, after others have led, must not be taken for one that was just sent.
package member
