package testenv

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Launch starts a process that the kernel kills when this one ends, however it does: a
// process that a test has started must not outlive it. The kernel goes by the thread
// that started the process, so a goroutine, which does not end, keeps one for that.
func Launch(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
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
