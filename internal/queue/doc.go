// Package queue has the queues of package sockets, and its means of waiting: an Outbox
// for each peer, and an Inbox for each socket with a queue for each peer. It knows
// neither socket types nor networks; a connection is a *Conn.
package queue
