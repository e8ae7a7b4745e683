package titanic

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"clustermap/internal/testenv"
)

// childVariable makes the test binary a server with the options in its value.
const childVariable = "CLUSTERMAP_TITANIC_CHILD"

// childOptions are the options of a server in another process.
type childOptions struct {
	Broker, Dir string
	Concurrency int
}

// child runs a server if childVariable is set, and reports whether it did. The server runs
// until it is killed or its input ends.
func child() bool {
	text := os.Getenv(childVariable)
	if text == "" {
		return false
	}
	var c childOptions
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	o := testOptions(c.Broker, c.Dir)
	o.Concurrency = c.Concurrency
	s, err := New(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// process is a child process that runs a server.
type process struct {
	*testenv.Child
	ready chan struct{} // closed when it has reported that it is ready, or has ended
}

func startProcess(t testing.TB, c childOptions) *process {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{testenv.StartChild(t, childVariable, string(text)), make(chan struct{})}
	go func() {
		defer close(p.ready)
		_, _ = p.Out.ReadString('\n')
	}()
	return p
}
