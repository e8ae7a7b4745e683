// Package invariants holds checks that are too expensive for production. They are
// compiled in only with the build tag "invariants".
//
// The main check is Poison: it overwrites bytes that are returned to a pool, so that
// a use after release reads garbage in tests instead of plausible old data.
package invariants

// poison is not a valid flags byte in ZMTP and stands out in a dump.
const poison = 0xDB

// Poison overwrites b when Enabled, and does nothing otherwise. It copies, because the
// race detector handles each copy as a single write; writing a large chunk byte by
// byte takes it a millisecond.
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
