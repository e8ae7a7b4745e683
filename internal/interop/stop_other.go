//go:build !unix

package interop

// Stop skips the test: this system cannot freeze a process.
func (p *Process) Stop() { p.t.Helper(); p.t.Skip("no SIGSTOP on this system") }

// Continue does nothing, as nothing was stopped.
func (p *Process) Continue() {}
