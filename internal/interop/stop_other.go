//go:build !unix

package interop

// Stop skips the test, because this system cannot stop a process.
func (p *Process) Stop() { p.t.Helper(); p.t.Skip("no SIGSTOP on this system") }

// Continue does nothing.
func (p *Process) Continue() {}
