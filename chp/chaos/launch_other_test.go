//go:build unix && !linux

package chaos

import "os/exec"

func launch(cmd *exec.Cmd) error { return cmd.Start() }
