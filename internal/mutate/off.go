//go:build !mutate

// Package mutate switches off single safeguards, to show that the tests notice. With
// the build tag "mutate", the environment variable CLUSTERMAP_MUTATE names the
// safeguard to switch off. Without the tag, all names are constants with the value
// false, so the compiler removes the code.
package mutate

const (
	KeepOldKeys   = false // a client keeps keys that are not in a new snapshot
	NoGapCheck    = false // a client of the whole map does not notice missing sequences
	MergeStale    = false // a client lets updates from before a snapshot overwrite values of the snapshot
	Reconnect     = false // a subscriber connects again without a new snapshot
	DropSlow      = false // the server drops updates for a slow subscriber instead of disconnecting it
	NoRepeatCheck = false // the server applies updates that a client repeats or that arrive late, and does not report which ones it has

	IgnoreConditions = false // the server makes requests whose conditions do not hold
	StaleRequests    = false // the server judges requests from before it was passive

	ExpireSuperseded = false // the server deletes a key when a replaced time to live ends
	PublishEarly     = false // the server publishes updates that are not on disk yet
	PublishAlone     = false // the active server publishes updates that the passive server does not have

	AcceptCutOff = false // a server that may be cut off from everybody accepts updates, and goes on alone
	CountStarts  = false // the number of starts decides which map continues
	CountExpiry  = false // an expired key counts as an update of a client
	CopyAnyMap   = false // a server that follows replaces its map by any that it is sent

	ClusterAckEarly      = false // a node of a cluster acknowledges what is not on its disk yet
	ClusterForgetVote    = false // a node of a cluster does not store its vote
	ClusterForgetCommit  = false // a node of a cluster does not store that a change of the members is committed
	ClusterApplyEarly    = false // a node of a cluster applies what is not committed yet
	ClusterReadLocal     = false // a node of a cluster answers reads without asking a majority
	ClusterNoQuorumCheck = false // a leader of a cluster that hears nobody goes on leading
	ClusterForgetMember  = false // a node of a cluster keeps one copy of its vote and takes the older one if that is damaged
	ClusterCollect       = false // a node of a cluster whose owner is slow takes entries without a bound
	ClusterSnapshotIndex = false // a snapshot of a cluster has a later index than its state
)

// SlowDisk waits as long as a slow disk takes to write, if PublishEarly is set. With a
// fast disk, tests would rarely notice PublishEarly.
func SlowDisk() {}
