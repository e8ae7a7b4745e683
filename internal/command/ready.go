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

// Ready prints the line "PROGRAM: ready: ENDPOINTS" on standard error. If bound is a
// CURVE server, a line before it has the public key that clients need. Ready does not
// wait until the lines are written, because standard error may be a pipe without a
// reader.
func Ready(cmd *cobra.Command, bound sockets.Security, endpoints string) {
	program, text := cmd.Root().Name(), ""
	if bound.CurveServer {
		text = fmt.Sprintf("%s: clients need --curve-server-key '%s'\n", program, bound.CurveSecretKey.Public())
	}
	text += fmt.Sprintf("%s: ready: %s\n", program, endpoints)
	go fmt.Fprint(cmd.ErrOrStderr(), text)
}

// sayTime is the maximum time that Say waits.
const sayTime = time.Second

// Say writes text to w, which is standard error. It returns when the text is written, or
// after a second, because standard error may be a pipe without a reader.
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

// EndpointError adds an exit code and advice to an error of Bind or Connect. flag is the
// flag that contains the endpoint, such as "--bind".
func EndpointError(flag, endpoint string, err error) error {
	var malformed *sockets.EndpointError
	switch {
	case errors.As(err, &malformed):
		return Fail(ExitUsage, "%s %q: %s", flag, endpoint, malformed.Reason)
	case errors.Is(err, syscall.ENOENT):
		return Fail(ExitRefused, "%s %s: there is no such directory", flag, endpoint)
	case strings.HasPrefix(endpoint, "ipc:") && errors.Is(err, syscall.EADDRINUSE):
		return Fail(ExitRefused, "%s %s: the file exists, and is in use or not a socket; stop the program that uses it, or choose another file", flag, endpoint)
	case strings.HasPrefix(endpoint, "ipc:") && errors.Is(err, syscall.EACCES):
		return Fail(ExitRefused, "%s %s: no permission to create the file", flag, endpoint)
	case errors.Is(err, syscall.EADDRINUSE):
		return Fail(ExitRefused, "%s %s: the address is in use; stop the program that uses it, or choose another address (port * selects a free one)", flag, endpoint)
	case errors.Is(err, syscall.EACCES):
		return Fail(ExitRefused, "%s %s: no permission to listen there; choose a port above 1023", flag, endpoint)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return Fail(ExitRefused, "%s %s: not an address of this machine", flag, endpoint)
	}
	return Fail(ExitRefused, "%s %s: %s", flag, endpoint, strings.TrimPrefix(err.Error(), "sockets: "))
}
