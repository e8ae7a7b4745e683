package history

const (
	// MostVersions bounds the versions of a key.
	MostVersions = 64

	// versionBytes is the memory of a version without its bytes, and lineBytes that of a key
	// without its name.
	versionBytes = 128
	lineBytes    = 160

	// slack is the number of dropped versions that stay in the order before those are removed
	// that are no less than the others.
	slack = 1024
)
