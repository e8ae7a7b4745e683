package chaos

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// launch starts a process that is killed when this one ends, however it does:
// a stopped server must not outlive the test. The system goes by the thread that
// started it, so one is kept for that.
func launch(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	once.Do(func() { go launcher() })
	l := launched{cmd, make(chan error)}
	launches <- l
	return <-l.err
}

// launcher runs as long as this process.
func launcher() {
	runtime.LockOSThread()
	for l := range launches {
		l.err <- l.cmd.Start()
	}
}

type launched struct {
	cmd *exec.Cmd
	err chan error
}

var (
	once     sync.Once
	launches = make(chan launched)
)
