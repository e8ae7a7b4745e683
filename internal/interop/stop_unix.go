//go:build unix

package interop

import "syscall"

// Stop stops the program (SIGSTOP): its connections stay open, but it reads nothing
// until Continue.
func (p *Process) Stop() { p.signal(syscall.SIGSTOP) }

// Continue continues a stopped program (SIGCONT).
func (p *Process) Continue() { p.signal(syscall.SIGCONT) }
