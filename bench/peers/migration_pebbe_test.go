package peers

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/pebbe/zmq4"
)

// The code of other libraries on docs/MIGRATION.md. A test in internal/docs compares it
// with the page.

// pebbeServer sends each request back.
func pebbeServer(endpoint func(string) string) error {
	server, err := zmq4.NewSocket(zmq4.REP)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Bind(endpoint("tcp://127.0.0.1:*")); err != nil {
		return err
	}
	for {
		m, err := server.RecvMessageBytes(0)
		if err != nil {
			return err
		}
		if _, err := server.SendMessage(m); err != nil {
			return err
		}
	}
}

func TestMigrationPebbe(t *testing.T) {
	endpoint := "ipc://" + filepath.Join(t.TempDir(), "server")
	go func() { // until the test binary ends
		t.Error(pebbeServer(func(string) string { return endpoint }))
	}()
	client, err := zmq4.NewSocket(zmq4.REQ)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.SetRcvtimeo(30 * time.Second); err != nil {
		t.Error(err)
	}
	if err := client.Connect(endpoint); err != nil {
		t.Fatal(err)
	}
	if _, err := client.SendMessage("hello"); err != nil {
		t.Fatal(err)
	}
	if m, err := client.RecvMessage(0); err != nil || m[0] != "hello" {
		t.Errorf("the reply is %q, %v", m, err)
	}
}
