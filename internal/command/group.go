package command

import (
	"os/exec"
	"runtime"
	"time"
)

// outputGrace is how long to wait for the output of a program that has ended, or was
// killed, if one of its child processes still has it open.
const outputGrace = time.Second

// RunGroup runs cmd, which must be from [exec.CommandContext], in a process group of its
// own. When the context ends, all processes of the group get SIGTERM, and after grace
// SIGKILL; if grace is 0, SIGKILL at once. On systems other than Unix only the program
// itself is killed. On Linux the kernel kills the program when this process ends.
//
// Like [exec.Cmd.Run] it returns exec.ErrWaitDelay if the program has succeeded and a
// child process still has its output open after a second.
func RunGroup(cmd *exec.Cmd, grace time.Duration) error {
	cmd.WaitDelay = grace + outputGrace
	ended := ownGroup(cmd, grace)
	defer ended()
	// Linux kills the program when the thread that started it ends (endWithParent).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}
