package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"clustermap/chp"
	"clustermap/internal/link"

	"github.com/spf13/cobra"
)

// checkEndpoints checks the flags --endpoint, as far as NewServer does not.
func (f *serveFlags) checkEndpoints(cmd *cobra.Command) error {
	if len(f.Endpoints) == 0 {
		return nil
	}
	for _, name := range []string{"host", "port"} {
		if cmd.Flags().Changed(name) {
			return fail(exitUsage, "--%s and --endpoint exclude each other", name)
		}
	}
	if f.pair.primary || f.pair.backup {
		for _, name := range []string{"peer", "state", "peer-state"} {
			if !cmd.Flags().Changed(name) {
				return fail(exitUsage, "a pair with --endpoint needs --%s", name)
			}
		}
	}
	for _, endpoint := range f.Endpoints {
		if e, err := link.ParseServer(endpoint, true); err == nil && e.Scheme == link.Inproc {
			return fail(exitUsage, "--endpoint %q: must have the form tcp://HOST:PORT or ipc://PATH", endpoint)
		}
	}
	return nil
}

// listenError adds advice to the error of an endpoint that cannot be bound. pair is nil for
// a server alone.
func (f *serveFlags) listenError(err error, pair *chp.PairOptions) error {
	var which *chp.ListenError
	if !errors.As(err, &which) {
		return fail(exitRefused, "%s", plain(err))
	}
	local := strings.HasPrefix(which.Endpoint, schemeIPC)
	// How to choose another endpoint, and why the server needs one that nobody has named.
	port, host, other := "other ports with --port (0 for any free ones)", "another with --host", "another address with --host, or other ports with --port"
	instead, needed := "", ""
	switch {
	case pair != nil && which.Endpoint == pair.State:
		instead, needed = "another --state, and name it to the other server as --peer-state", ", and this server publishes its state there"
	case len(f.Endpoints) > 0:
		instead = "another --endpoint"
	case !local && f.Port > 0 && !strings.HasSuffix(which.Endpoint, ":"+strconv.Itoa(f.Port)) && f.Model > 1:
		needed = fmt.Sprintf(", and a server needs the ports %d, %d and %d", f.Port, f.Port+1, f.Port+2)
	}
	if instead != "" {
		port, host, other = instead, instead, instead
	}
	path := strings.TrimPrefix(which.Endpoint, schemeIPC)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && local && otherFile(path):
		return fail(exitRefused, "%s exists and is not a socket; remove it, or choose %s", path, other)
	case errors.Is(err, syscall.EADDRINUSE):
		return fail(exitRefused, "%s is in use%s; stop the program that uses it, or choose %s", which.Endpoint, needed, port)
	case errors.Is(err, syscall.EACCES) && local:
		return fail(exitRefused, "no permission to create %s; choose %s", which.Endpoint, other)
	case errors.Is(err, fs.ErrNotExist) && local:
		return fail(exitRefused, "the directory of %s does not exist; create it, or choose %s", which.Endpoint, other)
	case errors.Is(err, syscall.EACCES):
		return fail(exitRefused, "no permission to listen on %s; choose a port above 1023", which.Endpoint)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fail(exitRefused, "%s is not on an address of this machine; choose %s", which.Endpoint, host)
	}
	return fail(exitRefused, "%s; choose %s", plain(err), other)
}

// otherFile reports whether there is a file with this name that is not a socket.
func otherFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() != fs.ModeSocket
}
