package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/chp"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// Three readers follow the file of flags, through changes that are wrong and restarts of
// the server.
func TestFlags(t *testing.T) {
	t.Parallel()
	host := loopback.Own()
	file := filepath.Join(t.TempDir(), "flags.json")
	write := func(text string) {
		testenv.Must(t, os.WriteFile(file+".new", []byte(text), 0o600))
		testenv.Must(t, os.Rename(file+".new", file))
	}
	write(`{"dark-mode": {"percent": 0}, "beta": {"percent": 5}}`)
	server := start(t, "flags", "-host", host, "serve", file)
	var readers []*process
	for range 3 {
		readers = append(readers, start(t, "flags", "-host", host, "read"))
	}
	all := func(line string) {
		t.Helper()
		for _, p := range readers {
			p.until(line)
		}
	}
	all("/flags/")
	all("/flags/")
	write(`{"dark-mode": {"percent": 100}, "beta": {"percent": 5}}`)
	all("/flags/dark-mode: &{100}")
	all("dark mode for alice")
	write(`{"dark-mode": `)
	write(`{"dark-mode": {"percent": 50}}`)
	for _, p := range readers {
		var seen string
		for range 2 { // in any order
			seen += p.until("/flags/") + "\n"
		}
		if !strings.Contains(seen, "/flags/beta: <nil>") || !strings.Contains(seen, "/flags/dark-mode: &{50}") {
			t.Errorf("%q", seen)
		}
	}
	server.stop()
	write(`{"dark-mode": {"percent": 100}}`)
	start(t, "flags", "-host", host, "serve", file)
	all("/flags/dark-mode: &{100}")
	for _, p := range readers {
		p.stop()
	}
}

// The configuration changes while the program runs, and stays as it is when the new one
// is not valid, or the server has lost it.
func TestConfig(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	o := chp.ServerOptions{Host: loopback.Own(), Port: 5556}
	endpoint, stop := server(t, o)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{endpoint}})
	testenv.Must(t, err)
	defer c.Close()
	set := func(text string) {
		_, err := c.SetSync(ctx, "/config/web", []byte(text))
		testenv.Must(t, err)
	}
	set(`{"greeting": "Hi"}`)
	p := start(t, "config", "-server", endpoint)
	p.until("ready: Hi")
	set(`{"greeting": "Hello", "workers": 8}`)
	p.until("configuration &{Greeting:Hello Workers:8}")
	set(`{"greeting": "Bye", "workers": 0}`)
	p.until("ignored: workers must be 1 to 100")
	set(`{"greeting": "Bye"`)
	p.until("ignored: ")
	stop()
	misses(t, c)
	server(t, o)
	set(`{"greeting": "Again", "workers": 2}`)
	p.until("configuration &{Greeting:Again Workers:2}")
	p.stop()
	for _, line := range p.seen {
		if strings.Contains(line, "nil") || strings.Contains(line, "Bye") {
			t.Errorf("%q", p.seen)
		}
	}
}
