// Package rights has what a client may do, as a server checks it: a Role says which keys a client may read and
// write, and Peers knows the role of each connection.
//
// Rights are sets of subtrees and keys (package subtree), so a check is a binary search, and no right reaches beyond a
// slash by chance: /a/ does not cover /ab/. A connection has one role from its handshake to its end; if
// its client's rights change, it ends, and the client connects again. So nothing that was begun
// under a right, such as a subscription, can outlive it.
package rights
