package kvjson

// The limits of a transaction, which are those of the library: so one of any size is refused
// before it is in memory.
const (
	MaxTransaction      = 1024    // updates, and checks
	MaxTransactionBytes = 2 << 20 // of several updates as they are sent
)

// maxProperties is the largest number of properties in an object. Finding a name that
// occurs twice among more would take long.
const maxProperties = 256
