// Package history keeps the last versions of each key.
//
// A [Keeper] gets the updates when they are in the map, in the order of their sequences, and
// copies them: it pins nothing of the store's log. Of each key it keeps some versions, the
// deletions among them, and of all keys together some bytes; beyond that it drops the version
// that is oldest in the whole map. The newest version of a key is in the map, too, which drops
// none.
//
// Versions move in portions ([Keeper.Portions], [Keeper.Restore]): into a checkpoint, to the
// other server of a pair, and ([AppendVersions], [Parse]) to a client that has asked.
package history
