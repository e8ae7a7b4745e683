//go:build !unix

package command

import (
	"os/exec"
	"time"
)

// ownGroup does nothing: only the program itself is killed when its context ends.
func ownGroup(*exec.Cmd, time.Duration) (ended func()) { return func() {} }
