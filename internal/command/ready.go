package command

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

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

// EndpointError gives an error of a socket's Bind or Connect an exit code, and says
// what to do about it. flag is the flag that the endpoint came from, such as
// "--bind".
func EndpointError(flag, endpoint string, err error) error {
	var malformed *sockets.EndpointError
	switch {
	case errors.As(err, &malformed):
		return Fail(ExitUsage, "%s %q: %s", flag, endpoint, malformed.Reason)
	case errors.Is(err, syscall.EADDRINUSE):
		return Fail(ExitRefused, "%s %s: the address is in use; end what uses it, or choose another one (the port * takes any that is free)", flag, endpoint)
	case errors.Is(err, syscall.EACCES):
		return Fail(ExitRefused, "%s %s: no permission to listen there; choose a port above 1023", flag, endpoint)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return Fail(ExitRefused, "%s %s: this is no address of this machine", flag, endpoint)
	}
	return Fail(ExitRefused, "%s %s: %s", flag, endpoint, strings.TrimPrefix(err.Error(), "sockets: "))
}
