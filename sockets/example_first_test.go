package sockets_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"clustermap/sockets"
)

// first is the program in the package's documentation.
func first(ctx context.Context) error {
	pull, err := sockets.NewPull(sockets.Options{})
	if err != nil {
		return err
	}
	defer pull.Close()
	if err := pull.Bind(ctx, "tcp://127.0.0.1:*"); err != nil {
		return err
	}

	push, err := sockets.NewPush(sockets.Options{})
	if err != nil {
		return err
	}
	defer push.Close()
	if err := push.Connect(pull.LastEndpoint()); err != nil {
		return err
	}
	if err := push.Send(ctx, []byte("job"), []byte("1")); err != nil {
		return err
	}
	message, err := pull.Recv(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s\n", message[0], message[1])
	return nil
}

func Example() {
	fmt.Println(first(context.Background()))
	// Output:
	// job 1
	// <nil>
}

// TestFirstProgram: the program in the package's documentation is the one that Example
// runs.
func TestFirstProgram(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	check(t, err)
	own, err := os.ReadFile("example_first_test.go")
	check(t, err)
	_, program, ok := strings.Cut(string(doc), "// # A first program\n")
	program, _, end := strings.Cut(program, "// # Socket types\n")
	if !ok || !end {
		t.Fatal("doc.go has no first program")
	}
	var lines strings.Builder
	for line := range strings.Lines(program) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok {
			lines.WriteString("\t" + code)
		} else if lines.Len() > 0 {
			lines.WriteString("\n")
		}
	}
	if code := strings.TrimRight(lines.String(), "\n") + "\n"; !strings.Contains(string(own), code) {
		t.Errorf("Example does not contain the program of doc.go:\n%s", code)
	}
}
