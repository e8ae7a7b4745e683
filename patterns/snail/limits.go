package snail

import "time"

// Defaults of Options.
const (
	DefaultMaxDelay = time.Second            // as in the guide
	DefaultMaxDrift = 200 * time.Microsecond // per second
	DefaultPause    = 100 * time.Millisecond
)

// maxDigits bounds numbers in messages, so that they fit into an int64.
const maxDigits = 18
