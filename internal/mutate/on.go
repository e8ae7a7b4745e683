//go:build mutate

package mutate

import (
	"os"
	"time"
)

// Variable names the safeguard to switch off.
const Variable = "CLUSTERMAP_MUTATE"

// Names lists all of them.
var Names []string

// See off.go.
var (
	KeepOldKeys   = off("keep-old-keys")
	NoGapCheck    = off("no-gap-check")
	MergeStale    = off("merge-stale")
	Reconnect     = off("reconnect")
	DropSlow      = off("drop-slow")
	NoRepeatCheck = off("no-repeat-check")

	ExpireSuperseded = off("expire-superseded")
	PublishEarly     = off("publish-early")
	PublishAlone     = off("publish-alone")
)

// SlowDisk: see off.go.
func SlowDisk() {
	if PublishEarly {
		time.Sleep(20 * time.Millisecond)
	}
}

func off(name string) bool {
	Names = append(Names, name)
	return os.Getenv(Variable) == name
}
