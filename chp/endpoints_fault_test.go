package chp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// MaxClients does not count inproc connections, and Status counts them as long as they
// are there.
func TestInprocClientsAreCounted(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	const name = "inproc://counted clients"
	s := startServer(t, ServerOptions{Endpoints: []string{name}, MaxClients: 1})
	var all []*Client
	for range 3 {
		c, err := NewClient(ClientOptions{Servers: []string{name}, Logger: quiet()})
		must(t, err)
		defer c.Close()
		all = append(all, c)
		_, err = c.SetSync(ctx, "/a", []byte("1"))
		must(t, err)
	}
	if n := s.Status().Clients; n != len(all) {
		t.Errorf("%d clients, want %d", n, len(all))
	}
	for _, c := range all {
		must(t, c.Close())
	}
	eventually(t, "the clients are gone", func() bool { return s.Status().Clients == 0 })
}

// A file in the way of the third socket leaves no socket behind, and is as it was.
func TestIPCBindsAllOrNone(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "chp")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.WriteFile(dir+"/b+2", []byte("data"), 0o600))
	s, err := NewServer(ServerOptions{Endpoints: []string{"ipc://" + dir + "/b"}, Logger: quiet()})
	must(t, err)
	var listen *ListenError
	if err := s.Listen(context.Background()); !errors.As(err, &listen) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, want %v", err, syscall.EADDRINUSE)
	}
	must(t, s.Close())
	if files, _ := filepath.Glob(dir + "/*"); len(files) != 1 {
		t.Errorf("files %q, want b+2 alone", files)
	}
	if data, _ := os.ReadFile(dir + "/b+2"); string(data) != "data" {
		t.Errorf("the file has %q", data)
	}
}
