// Package interop connects tests with libzmq: it starts small Python programs that
// use pyzmq, and exchanges lines of JSON with them.
//
// The programs are in the folder python and embedded in the test binary. Each
// executes the commands of one test and ends with it:
//
//	interop.Require(t)
//	peer := interop.Python(t, "zmq_peer.py", "--type", "ROUTER", "--bind", "tcp://127.0.0.1:*")
//	...
//	var got interop.Received
//	peer.Call(interop.Op{"op": "recv", "n": 3}, &got)
//
// If Python or pyzmq is missing, Require skips the test. With the environment
// variable CLUSTERMAP_REQUIRE_INTEROP=1 it fails the test instead, so that a machine
// that should run these tests does not skip them silently.
package interop

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// python is the system's interpreter, because the distribution's pyzmq package
// belongs to it. Another one in PATH may lack pyzmq.
const python = "/usr/bin/python3"

// variable is the environment variable that makes a missing libzmq a failure.
const variable = "CLUSTERMAP_REQUIRE_INTEROP"

var find = sync.OnceValues(func() (version string, err error) {
	out, err := exec.Command(python, "-c", "import zmq; print(zmq.zmq_version())").Output()
	if err == nil {
		return strings.TrimSpace(string(out)), nil
	}
	reason := err.Error()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
		reason = lines[len(lines)-1]
	}
	return "", fmt.Errorf("no libzmq to test against: %s with pyzmq is needed (%s)", python, reason)
})

// Require skips t if there is no libzmq to test against, or fails it if
// CLUSTERMAP_REQUIRE_INTEROP=1.
func Require(t testing.TB) {
	t.Helper()
	if _, err := find(); err != nil {
		missing(t, err)
	}
}

// Program returns the path of another program to test against, such as curl. If it is missing,
// it does what Require does.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, err)
	}
	return path
}

func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(variable) == "1" {
		t.Fatalf("%v (not skipped, because %s=1)", err, variable)
	}
	t.Skip(err)
}

// Version returns the version of libzmq, such as "4.3.4", or "" if it is missing.
func Version() string {
	version, _ := find()
	return version
}
