package httpside

import "time"

// The limits of a side. Its clients are few: whoever collects metrics, and whoever starts and stops
// programs.
const (
	maxConnections = 64
	maxHeader      = 16 << 10 // bytes
	patience       = 10 * time.Second
	idle           = time.Minute
)
