package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"clustermap/chp"
	"clustermap/internal/interop"

	"github.com/spf13/cobra"
)

var httpLine = regexp.MustCompile(`(?m)^chp: http on (https?://\S+)$`)

// web returns the URL of a process's --http.
func (p *process) web() string {
	p.t.Helper()
	for {
		written := p.stderr.Written()
		if m := httpLine.FindStringSubmatch(p.stderr.String()); m != nil {
			return m[1]
		}
		select {
		case <-written:
		case <-p.waited:
			p.t.Fatalf("exit code %d: %s", p.wait(), p.stderr.String())
		}
	}
}

func curl(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(interop.Program(t, "curl"), append([]string{"--silent", "--show-error", "--max-time", "60"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl %s: %v: %s", args, err, stderr.String())
	}
	return string(out)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestHTTPShowsTheServer(t *testing.T) {
	t.Parallel()
	s := serve(t, "--http", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"), "--sync", "always")
	url := s.web()
	must(t, "set", "--server", s.endpoint, "/k", "v")
	if code, body := get(t, url+"/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("readyz: %d %s", code, body)
	}
	code, body := get(t, url+"/metrics")
	for _, line := range []string{"chp_keys 1", "chp_updates_total 1", "chp_active 1", `chp_wal_fsync_duration_seconds_bucket{le="10"} `, "process_resident_memory_bytes "} {
		if code != 200 || !strings.Contains(body, "\n"+line) {
			t.Errorf("no line %q in %s", line, body)
		}
	}
	if regexp.MustCompile(`(?m)^chp_wal_fsync_duration_seconds_count 0$`).MatchString(body) {
		t.Error("no flush was timed")
	}
	asked := object(t, must(t, "status", "--json", "--server", s.endpoint))
	_, body = get(t, url+"/status")
	if told := object(t, body); told["sequence"] != asked["sequence"] || told["keys"] != asked["keys"] {
		t.Errorf("HTTP says %v, and chp status %v", told, asked)
	}
}

// Whoever opens connections and says nothing, or sends one header after the other, keeps nobody
// from the server's clients, and the address is free again when the server has ended.
func TestHTTPFloodLeavesClientsAlone(t *testing.T) {
	t.Parallel()
	s := serve(t, "--http", "127.0.0.1:0")
	url := s.web()
	address := strings.TrimPrefix(url, "http://")
	for range 200 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n")
	}
	must(t, "set", "--server", s.endpoint, "/k", "v")
	if got := must(t, "get", "--server", s.endpoint, "/k"); got != "v\n" {
		t.Errorf("got %q", got)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.stderr.String())
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// Who does not read an answer does not keep a connection, also at a server that serves profiles.
func TestHTTPAnswersHaveATime(t *testing.T) {
	t.Parallel()
	f := httpFlags{address: "127.0.0.1:0", pprof: true}
	cmd := new(cobra.Command)
	cmd.SetErr(io.Discard)
	a, err := f.listen(t.Context(), cmd, new(chp.ServerOptions))
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	if a.http.WriteTimeout != httpPatience {
		t.Errorf("an answer may take %v", a.http.WriteTimeout)
	}
}

func TestHTTPRefusesTooLongHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, "--http", "127.0.0.1:0")
	c, err := net.Dial("tcp", strings.TrimPrefix(s.web(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Error(answer.Status)
	}
}

func TestHTTPFlags(t *testing.T) {
	t.Parallel()
	try(t, "serve", "--http", "8080").expect(t, exitUsage, "must be HOST:PORT")
	try(t, "serve", "--http", ":8080").expect(t, exitUsage, "must be HOST:PORT")
	try(t, "serve", "--http-pprof").expect(t, exitUsage, "need --http")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	try(t, "serve", "--port", "0", "--http", l.Addr().String()).expect(t, exitRefused, "address already in use")
}

func TestHTTPByCurl(t *testing.T) {
	t.Parallel()
	s := serve(t, "--http", "127.0.0.1:0")
	if got := curl(t, "--write-out", "%{http_code}", s.web()+"/readyz?verbose"); got != "[+] answers\n[+] serves\n[+] role\n200" {
		t.Errorf("got %q", got)
	}
	if got := curl(t, "--write-out", "%{http_code}", "--output", os.DevNull, "-H", "Host: evil.example", s.web()+"/status"); got != "421" {
		t.Errorf("got %q", got)
	}
}
