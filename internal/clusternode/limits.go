package clusternode

import "time"

const (
	maxPort     = 65535
	bindTimeout = 10 * time.Second      // to listen
	changeAgain = 10 * time.Millisecond // until a change is tried again that has to wait for another one
)
