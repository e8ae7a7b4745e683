// Package raft is the journal of a server that is a node of a cluster: a batch is committed when a majority
// of the nodes has it on its disk. The algorithm is not here: a [Node] has it, which the program gives to the
// server, so that package chp depends on no library for it.
//
// The journal passes on what the server orders, and no more. What is committed, of this server or of
// others, the node tells its [Owner], in the order of its log; what was ordered here and is lost, too.
package raft
