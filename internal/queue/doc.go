// Package queue holds what package sockets queues messages with, and waits with: an
// Outbox for each peer, and an Inbox for each socket with a queue for each peer.
// It knows neither socket types nor networks; a connection is a *Conn.
package queue
