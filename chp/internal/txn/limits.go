package txn

const (
	// MaxUpdates and MaxConditions bound a transaction, so that the server orders it while others
	// wait no longer than for a usual batch of updates.
	MaxUpdates    = 1024
	MaxConditions = 1024

	// MaxSize bounds several updates as they are sent, in bytes: 1 MiB of keys and values, and
	// as much for all that is around them. One update alone has the limits of Set.
	MaxSize = 2 << 20

	// MaxMessage bounds a request with its conditions in bytes, if that is more than the server's
	// largest value.
	MaxMessage = 2 * MaxSize

	// MaxAnswerValue bounds a value in an answer, in bytes.
	MaxAnswerValue = 64 << 10
)
