//go:build !mutate

// Package mutate switches off single safeguards, to show that tests notice when
// one is missing. With the build tag mutate the environment variable
// CLUSTERMAP_MUTATE names the one to switch off. Without the tag all of them are
// constants that are false, and the compiler leaves out what they guard.
package mutate

const (
	KeepOldKeys   = false // a client keeps the keys that a new snapshot no longer has
	NoGapCheck    = false // a client of the whole map does not notice missing sequences
	MergeStale    = false // a client lets updates that came before a snapshot's cut overwrite what the snapshot has
	Reconnect     = false // a subscriber connects again without a new snapshot
	DropSlow      = false // the server leaves out updates for a slow subscriber instead of disconnecting it
	NoRepeatCheck = false // the server takes updates that a client sends again or that come late, and does not tell which it has

	ExpireSuperseded = false // the server deletes a key at the end of a time to live that an update has replaced
	PublishEarly     = false // the server publishes updates that are not on the disk yet
	PublishAlone     = false // the active server publishes updates that the passive one does not have
)

// SlowDisk waits as long as a slow disk takes to write, if the server publishes what
// is not written yet: with a fast one that is seldom seen.
func SlowDisk() {}
