package docs

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/chp/httpkv"
	"clustermap/internal/testenv"
)

// TestBrowser runs the script of HTTP.md against a server: it has the state, and then what changes,
// also when its connection was lost. Where there is no node to run it, its reader stands for it: see httpkv's tests.
func TestBrowser(t *testing.T) {
	t.Parallel()
	var script string
	for _, b := range blocks(t, "js") {
		if b.page == "HTTP.md" {
			script += b.text
		}
	}
	for _, event := range []string{"reset", "set", "del", "synced"} {
		if !strings.Contains(script, `addEventListener("`+event+`"`) {
			t.Errorf("the script does not hear of %s", event)
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Logf("the script is not run: %v", err)
		return
	}
	if out, err := exec.Command(node, "--experimental-eventsource", "-e", "new EventSource('http://127.0.0.1:9').close()").CombinedOutput(); err != nil {
		t.Logf("the script is not run: node has no EventSource: %s", out)
		return
	}
	ctx := testenv.Context(t)
	s, err := chp.NewServer(chp.ServerOptions{Host: "127.0.0.1"})
	testenv.Must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	<-s.Ready()
	defer func() {
		s.Close()
		testenv.Must(t, <-ended)
	}()
	h := httpkv.New(httpkv.Options{})
	h.Attach(s)
	web := httptest.NewServer(h)
	defer func() {
		h.Close()
		web.Close()
	}()
	testenv.Must(t, s.Set(ctx, "/lamp/1", []byte("on")))
	testenv.Must(t, s.Set(ctx, "/other", []byte("on")))
	file := filepath.Join(t.TempDir(), "watch.js")
	text := strings.ReplaceAll(script, "http://127.0.0.1:8080", web.URL) + `
for (const name of ["set", "del"]) source.addEventListener(name, () => console.log(map));
setInterval(() => {}, 1000); // a page stays, too
`
	testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
	cmd := exec.CommandContext(ctx, node, "--experimental-eventsource", file)
	cmd.WaitDelay = time.Second
	var out testenv.Buffer
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	testenv.Must(t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(exited)
	}()
	defer func() {
		_ = cmd.Process.Kill()
		<-exited
	}()
	prints := func(text string) {
		t.Helper()
		for {
			written := out.Written()
			if strings.HasSuffix(out.String(), text+"\n") {
				return
			}
			select {
			case <-written:
			case <-exited:
				t.Fatalf("it has ended with %q %q", out.String(), stderr.String())
			case <-ctx.Done():
				t.Fatalf("no %s in %q %q", text, out.String(), stderr.String())
			}
		}
	}
	prints("Map(1) { '/lamp/1' => 'on' }")
	testenv.Must(t, s.Set(ctx, "/lamp/2", []byte("off")))
	prints("Map(2) { '/lamp/1' => 'on', '/lamp/2' => 'off' }")
	testenv.Must(t, s.Delete(ctx, "/lamp/1"))
	prints("Map(1) { '/lamp/2' => 'off' }")
	web.CloseClientConnections()
	testenv.Must(t, s.Delete(ctx, "/lamp/2"))
	prints("Map(0) {}")
}
