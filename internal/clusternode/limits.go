package clusternode

import "time"

const (
	maxPort     = 65535 - Offset        // the highest first port of a node
	bindTimeout = 10 * time.Second      // to listen
	changeAgain = 10 * time.Millisecond // until a change is tried again that has to wait for another one
)
