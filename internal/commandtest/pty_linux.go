package commandtest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"clustermap/internal/testenv"

	"golang.org/x/sys/unix"
)

// Terminal is a program that runs on a terminal.
type Terminal struct {
	*os.File // the other side of the terminal
	Cmd      *exec.Cmd
	t        testing.TB
}

// OnTerminal starts a command on a terminal without echo.
func OnTerminal(t testing.TB, cmd *exec.Cmd) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	testenv.Must(t, err)
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	testenv.Must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	testenv.Must(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	testenv.Must(t, err)
	defer slave.Close()
	mode, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	testenv.Must(t, err)
	mode.Lflag &^= unix.ECHO
	mode.Oflag &^= unix.OPOST
	testenv.Must(t, unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, mode))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	testenv.Must(t, testenv.Launch(cmd))
	return &Terminal{master, cmd, t}
}

// Until reads until the text ends with a byte, and returns it.
func (p *Terminal) Until(end byte) string {
	p.t.Helper()
	text, err := bufio.NewReaderSize(p, 16).ReadString(end)
	testenv.Must(p.t, err)
	return text
}

// Rest returns what the program prints until it ends, and its exit code.
func (p *Terminal) Rest() (text string, code int) {
	p.t.Helper()
	b := make([]byte, 1024)
	for {
		n, err := p.Read(b)
		text += string(b[:n])
		if errors.Is(err, unix.EIO) || errors.Is(err, fs.ErrClosed) { // the program has ended
			break
		}
		testenv.Must(p.t, err)
	}
	_ = p.Cmd.Wait()
	return text, p.Cmd.ProcessState.ExitCode()
}
