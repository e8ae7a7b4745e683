package freelance

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

// childVariable makes the test binary a server on the endpoint in its value. The first
// frame of each request is the time that its handler takes.
const childVariable = "FREELANCE_TEST_CHILD"

func child() {
	bind := os.Getenv(childVariable)
	if bind == "" {
		return
	}
	o := ServerOptions{Bind: bind, Concurrency: 1000, Handler: func(_ context.Context, r [][]byte) ([][]byte, error) {
		d, err := time.ParseDuration(string(r[0]))
		time.Sleep(d)
		return r, err
	}}
	s, err := NewServer(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Endpoint())
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0) // the test has ended
}

// process is a child process that runs a server.
type process struct {
	*testenv.Child
	endpoint string
}

func startProcess(t testing.TB, bind string) *process {
	t.Helper()
	c := testenv.StartChild(t, childVariable, bind)
	return &process{c, c.Line()}
}
