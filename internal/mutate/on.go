//go:build mutate

package mutate

import (
	"os"
	"time"
)

// Variable is the environment variable that names the safeguard to switch off.
const Variable = "CLUSTERMAP_MUTATE"

// Names lists the names of all safeguards.
var Names []string

// See off.go.
var (
	KeepOldKeys   = off("keep-old-keys")
	NoGapCheck    = off("no-gap-check")
	MergeStale    = off("merge-stale")
	Reconnect     = off("reconnect")
	DropSlow      = off("drop-slow")
	NoRepeatCheck = off("no-repeat-check")

	IgnoreConditions = off("ignore-conditions")
	StaleRequests    = off("stale-requests")

	ExpireSuperseded = off("expire-superseded")
	PublishEarly     = off("publish-early")
	PublishAlone     = off("publish-alone")

	AcceptCutOff = off("accept-cut-off")
	CountStarts  = off("count-starts")
	CountExpiry  = off("count-expiry")
	CopyAnyMap   = off("copy-any-map")

	ClusterAckEarly      = off("cluster-ack-early")
	ClusterForgetVote    = off("cluster-forget-vote")
	ClusterForgetCommit  = off("cluster-forget-commit")
	ClusterApplyEarly    = off("cluster-apply-early")
	ClusterReadLocal     = off("cluster-read-local")
	ClusterNoQuorumCheck = off("cluster-no-quorum-check")
	ClusterForgetMember  = off("cluster-forget-member")
	ClusterCollect       = off("cluster-collect")
	ClusterSnapshotIndex = off("cluster-snapshot-index")
)

// SlowDisk is described in off.go.
func SlowDisk() {
	if PublishEarly {
		time.Sleep(20 * time.Millisecond)
	}
}

func off(name string) bool {
	Names = append(Names, name)
	return os.Getenv(Variable) == name
}
