// Package interop puts libzmq at the other end of a test: it starts small
// Python programs that use pyzmq, and talks to them in lines of JSON.
//
// The programs live in the folder python and travel inside the test binary.
// Each answers the commands of the test one by one, and ends with it:
//
//	interop.Require(t)
//	peer := interop.Python(t, "zmq_peer.py", "--type", "ROUTER", "--bind", "tcp://127.0.0.1:*")
//	...
//	var got interop.Received
//	peer.Call(interop.Op{"op": "recv", "n": 3}, &got)
//
// Where Python or pyzmq is missing, Require skips the test. With the variable
// CLUSTERMAP_REQUIRE_INTEROP=1 in the environment it fails it instead, so that
// no machine that should run these tests passes over them in silence.
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

// python is the system's interpreter, for that is the one the distribution's
// pyzmq package belongs to. Another that comes first in PATH may have none.
const python = "/usr/bin/python3"

// variable makes a missing libzmq a failure.
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

// Require skips t where there is no libzmq to test against, or fails it if
// CLUSTERMAP_REQUIRE_INTEROP=1 asks for that.
func Require(t testing.TB) {
	t.Helper()
	if _, err := find(); err != nil {
		if os.Getenv(variable) == "1" {
			t.Fatalf("%v, and %s=1 forbids to skip", err, variable)
		}
		t.Skip(err)
	}
}

// Version is libzmq's, such as "4.3.4", or "" where there is none.
func Version() string {
	version, _ := find()
	return version
}
