package hot

// Tracked is the number of keys that a sketch counts, in about 320 KiB; and sample the number of
// updates of a batch that it looks at.
const (
	Tracked = 1024
	sample  = 32
)
