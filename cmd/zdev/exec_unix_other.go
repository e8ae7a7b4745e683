//go:build unix && !linux

package main

import "syscall"

// endWithParent does nothing: a command goes on when this process is killed.
func endWithParent(*syscall.SysProcAttr) {}
