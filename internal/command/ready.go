package command

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"clustermap/sockets"

	"github.com/spf13/cobra"
)

// Ready says on standard error that a device is ready and at which endpoints, in one
// line: "PROGRAM: ready: ENDPOINTS". If bound is a CURVE server, a line before it
// has the public key that clients need. Ready does not wait until the lines are
// written: standard error may be a pipe that nobody reads.
func Ready(cmd *cobra.Command, bound sockets.Security, endpoints string) {
	program, text := cmd.Root().Name(), ""
	if bound.CurveServer {
		text = fmt.Sprintf("%s: clients need --curve-server-key '%s'\n", program, bound.CurveSecretKey.Public())
	}
	text += fmt.Sprintf("%s: ready: %s\n", program, endpoints)
	go fmt.Fprint(cmd.ErrOrStderr(), text)
}

// sayTime is how long Say waits at most.
const sayTime = time.Second

// Say writes text to standard error, and returns when it is written, or after a second:
// standard error may be a pipe that nobody reads, which must not keep a program from its
// work or its end.
func Say(w io.Writer, text string) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(w, text)
	}()
	timer := time.NewTimer(sayTime)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	}
}

// EndpointError gives an error of a socket's Bind or Connect an exit code, and says
// what to do about it. flag is the flag that the endpoint came from, such as
// "--bind".
func EndpointError(flag, endpoint string, err error) error {
	var malformed *sockets.EndpointError
	switch {
	case errors.As(err, &malformed):
		return Fail(ExitUsage, "%s %q: %s", flag, endpoint, malformed.Reason)
	case errors.Is(err, syscall.ENOENT):
		return Fail(ExitRefused, "%s %s: there is no such directory", flag, endpoint)
	case strings.HasPrefix(endpoint, "ipc:") && errors.Is(err, syscall.EADDRINUSE):
		return Fail(ExitRefused, "%s %s: the file is there, and is in use or no socket; end what uses it, or choose another one", flag, endpoint)
	case strings.HasPrefix(endpoint, "ipc:") && errors.Is(err, syscall.EACCES):
		return Fail(ExitRefused, "%s %s: no permission to make the file", flag, endpoint)
	case errors.Is(err, syscall.EADDRINUSE):
		return Fail(ExitRefused, "%s %s: the address is in use; end what uses it, or choose another one (the port * takes any that is free)", flag, endpoint)
	case errors.Is(err, syscall.EACCES):
		return Fail(ExitRefused, "%s %s: no permission to listen there; choose a port above 1023", flag, endpoint)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return Fail(ExitRefused, "%s %s: this is no address of this machine", flag, endpoint)
	}
	return Fail(ExitRefused, "%s %s: %s", flag, endpoint, strings.TrimPrefix(err.Error(), "sockets: "))
}
