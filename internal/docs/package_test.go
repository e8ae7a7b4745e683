package docs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermap/chp"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// TestPackageBlocks: the code in the documentation of package chp is part of code that is
// compiled and run, as that of the pages is.
func TestPackageBlocks(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join(root, "chp", "doc.go"))
	testenv.Must(t, err)
	var all []string
	open := false
	for line := range strings.Lines(string(source)) {
		code, isCode := strings.CutPrefix(line, "//\t")
		switch {
		case isCode && open:
			all[len(all)-1] += code
		case isCode:
			all = append(all, code)
		}
		open = isCode
	}
	if len(all) != 2 {
		t.Errorf("%d blocks of code, want a server and a client", len(all))
	}
	run := executed(t)
	for _, code := range all {
		if !slices.ContainsFunc(run, func(program string) bool { return strings.Contains(program, plain(code)) }) {
			t.Errorf("chp/doc.go: no test runs this code:\n%s", code)
		}
	}
}

// TestPackageMap: the server and the client in the documentation of package chp.
func TestPackageMap(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(testenv.Context(t))
	defer stop()
	own := loopback.Own()
	host := func(string) string { return own }
	endpoint := placesAt(own)
	serve := func() error {
		s, err := chp.NewServer(chp.ServerOptions{Host: host("127.0.0.1"), Port: 5556})
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Listen(ctx); err != nil { // such as a port in use
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx) }()
		if err := s.Set(ctx, "/config/colour", []byte("red")); err != nil {
			return err
		}
		return <-ended // nil when ctx has ended
	}
	follow := func() error {
		c, err := chp.NewClient(chp.ClientOptions{Servers: []string{endpoint("tcp://127.0.0.1:5556")}})
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.WaitActive(ctx); err != nil {
			return err
		}
		colour, ok := c.Get("/config/colour")
		testenv.Eventually(t, "the colour", func() bool { // the server may set it after the snapshot
			colour, ok = c.Get("/config/colour")
			return ok
		})
		if string(colour) != "red" {
			t.Errorf("the colour is %q", colour)
		}
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- serve() }()
	testenv.Must(t, follow())
	stop()
	testenv.Must(t, <-ended)
}
