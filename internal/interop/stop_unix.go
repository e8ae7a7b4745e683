//go:build unix

package interop

import "syscall"

// Stop freezes the program (SIGSTOP): its connections stay open, and it reads
// nothing any more until Continue.
func (p *Process) Stop() { p.signal(syscall.SIGSTOP) }

// Continue lets a stopped program go on.
func (p *Process) Continue() { p.signal(syscall.SIGCONT) }
