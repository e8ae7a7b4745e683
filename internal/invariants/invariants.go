// Package invariants holds checks that cost too much for production and are
// compiled in by the build tag "invariants" only.
//
// The main one is poison: bytes that went back to a pool are overwritten, so
// that a view used after its release reads garbage in tests instead of
// yesterday's, plausible data.
package invariants

// poison is a byte that is no valid ZMTP flag and stands out in a dump.
const poison = 0xDB

// Poison overwrites b when Enabled, and does nothing otherwise.
func Poison(b []byte) {
	if !Enabled {
		return
	}
	for i := range b {
		b[i] = poison
	}
}

// Assert panics with message when Enabled and ok is false.
func Assert(ok bool, message string) {
	if Enabled && !ok {
		panic("invariant violated: " + message)
	}
}
