package main

import "syscall"

// endWithParent has the kernel kill the command when the thread that starts it ends: with
// this process, even if that is killed. The caller must lock its goroutine to the thread
// until the command has ended. Processes that the command starts are not killed.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
