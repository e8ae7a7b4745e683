package command

import "syscall"

// endWithParent makes the kernel kill the program when the thread that started it ends,
// and so with this process, even if that is killed. The caller must lock its goroutine to
// the thread until the program has ended. Child processes of the program are not killed.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
