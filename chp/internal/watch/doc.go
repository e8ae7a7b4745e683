// Package watch turns the updates of one map into events for any number of readers. It
// knows a store and batches of its log, and nothing of clients, servers and connections:
//
//	the map's writer -> List -> the queue of each Feed -> events -> the reader
//
// A Feed begins with a [State] of the map, then gets every batch (List.Push), and the
// difference when another state replaces the present one (List.Restart).
package watch
