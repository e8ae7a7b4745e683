// Package state holds the replicated map as one thing: keys and values, times to live, the
// progress of each client, the identity of the map, and its terms.
//
// A [State] changes by [State.Apply], which takes one batch of updates, an [Entry]. Whoever
// orders updates, replays a log, follows another server, loads a first map or deletes
// expired keys makes entries and applies them; nobody changes a part of the state by hand.
// So two servers that have applied the same entries have the same state, byte for byte in
// what [Image.WriteTo] writes.
//
// A state moves as a whole in sections ([Image.Sections], [State.Restore]): a checkpoint on
// disk has them in its entries, a server sends them to the other one of its pair, and
// [Image.WriteTo] writes them with a version in front.
//
// The package does no input or output. Its clock is that of package timer.
package state
