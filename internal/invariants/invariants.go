// Package invariants holds checks that cost too much for production and are
// compiled in by the build tag "invariants" only.
//
// The main one is poison: bytes that went back to a pool are overwritten, so
// that a view used after its release reads garbage in tests instead of
// yesterday's, plausible data.
package invariants

// poison is a byte that is no valid ZMTP flag and stands out in a dump.
const poison = 0xDB

// Poison overwrites b when Enabled, and does nothing otherwise. The race detector takes
// each copy as a single write of all its bytes. Byte by byte it needs a millisecond for a
// chunk that a connection reads into.
func Poison(b []byte) {
	if !Enabled || len(b) == 0 {
		return
	}
	b[0] = poison
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// Assert panics with message when Enabled and ok is false.
func Assert(ok bool, message string) {
	if Enabled && !ok {
		panic("invariant violated: " + message)
	}
}
