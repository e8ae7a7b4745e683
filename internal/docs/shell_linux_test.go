package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermap/internal/testenv"
)

// notRun has the blocks that no test runs, by their first lines, and why.
var notRun = map[string]string{
	"go run ./cmd/chp serve":                  "it is the server of the tour, which is run",
	"go build ./...":                          "CI does",
	"go test ./...":                           "it would run itself",
	"go run ./examples/clone/model3/server":   "the tests of examples/clone run these programs",
	"go run ./examples/clone/model6/server &": "the tests of examples/clone run these programs",
	"cd bench/peers && go run ./cmd/blackbox -rounds 5 -workers 0,1,4 -cores 1 -pub-cores 0   # one core, and one for the publisher": "a benchmark of minutes, in another module",
	"cd bench/peers && go test -run '^$' -bench Freelance -benchtime 300000x .":                                                      "a benchmark, in another module",
	"go run ./bench/cmd/majordomo                  # ours alone":                                                                     "a benchmark of minutes",
}

// devices has the blocks of which each line is a program that runs until it is
// stopped, by their first lines. Each line runs for a moment.
var devices = []string{
	"zdev tap --frontend tcp://127.0.0.1:6000",
	"zdev cache ",
	"zdev lag ",
	"chp serve --primary --host 0.0.0.0",
}

// standIns replaces parts of commands that a test lacks, or that would take long.
var standIns = strings.NewReplacer(
	"/path/to/clustermap", "$ROOT",
	"chp promote --server tcp://127.0.0.1:5566", "chp serve --backup --bstar-interval 100ms & until chp promote --yes --server tcp://127.0.0.1:5566; do :; done",
	"go mod init hello", "go mod init hello; chp serve & cp $MAIN main.go",
	"go mod tidy", "GOPROXY=off GONOSUMDB='*' GOFLAGS=-mod=mod go mod tidy", // a test needs no network
	"go build -o $dir ./cmd/...", "cp $BUILT/* $dir",
	"--updates 2000000", "--updates 20000 --warmup 2000 --rounds 1",
	"--count 100000", "--count 1000",
	"feed.example", "127.0.0.1",
	"tcp://A:", "tcp://127.0.0.2:",
	"tcp://B:", "tcp://127.0.0.3:",
)

// goGet is the command of the README of a published copy (.ci/publish), whose place a copy
// on this machine takes.
var goGet = regexp.MustCompile(`(?m)^go get (\S+)@(\S+)$`)

// standIn returns a script as a test runs it.
func standIn(script string) string {
	return standIns.Replace(goGet.ReplaceAllString(script, "go mod edit -require $1@$2 -replace $1=/path/to/clustermap"))
}

// preludes has commands that a page describes only in words before its blocks.
var preludes = map[string]string{
	"TITANIC.md": "echo photo > photo.jpg; zdev worker thumbnail --echo &\n",
}

// built builds the commands once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "docs-test-")
	if err != nil {
		return "", err
	}
	folder = dir
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir, "./cmd/...")
	build.Dir = root
	out, err := build.CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
	}
	return dir, err
})

var folder string // of the built commands

func TestMain(m *testing.M) {
	code := m.Run()
	if folder != "" {
		os.RemoveAll(folder)
	}
	os.Exit(code)
}

// shell runs a script, in the module's folder and in a network of its own. A command
// that fails ends it, except for one that timeout has ended.
func shell(t *testing.T, script string) {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("unshare", "--map-root-user", "--net", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Skipf("this machine makes no network namespaces: %v: %s", err, out)
	}
	cmd := exec.CommandContext(testenv.Context(t), "unshare", "--map-root-user", "--net", "bash", "-uc", `ip link set lo up
trap 'code=$?; ((code == 124)) || { echo "exit code $code: $BASH_COMMAND" >&2; exit $code; }' ERR
`+script+"\ntrue")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "CHP_") && name != "PATH" && name != "TMPDIR" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Dir = t.TempDir()
	program := filepath.Join(t.TempDir(), "main.go")
	for _, b := range blocks(t, "go") {
		if b.isProgram() {
			testenv.Must(t, os.WriteFile(program, []byte(b.text), 0o600))
		}
	}
	// On a busy machine a server may take longer to start than a client usually waits.
	cmd.Env = append(cmd.Env, "CHP_TIMEOUT=1m", "ROOT="+top, "MAIN="+program, "BUILT="+bin, "TMPDIR="+t.TempDir(), "PATH="+bin+":"+os.Getenv("PATH"))
	// Files, not pipes: the servers of a script hold them open when it has ended.
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err != nil {
		b, _ := os.ReadFile(out.Name())
		t.Errorf("%v\n%s\nin this script:\n%s", err, bytes.TrimSpace(b), script)
	}
}

// TestShellBlocks: the blocks of shell commands on the pages can be run, those of a
// section one after the other.
func TestShellBlocks(t *testing.T) {
	t.Parallel()
	type place struct{ page, section string }
	scripts := map[place]string{}
	used := map[string]bool{}
blocks:
	for _, b := range blocks(t, "sh") {
		first, _, _ := strings.Cut(b.text, "\n")
		if notRun[first] != "" {
			used[first] = true
			continue
		}
		for _, d := range devices {
			if strings.HasPrefix(first, d) {
				used[d] = true
				script := strings.Builder{}
				for line := range strings.Lines(b.text) {
					script.WriteString("timeout -s INT 0.5 " + line)
				}
				t.Run(b.page, func(t *testing.T) {
					t.Parallel()
					shell(t, standIn(script.String()))
				})
				continue blocks
			}
		}
		scripts[place{b.page, b.section}] += b.text
	}
	for p, text := range scripts {
		t.Run(p.page, func(t *testing.T) {
			t.Parallel()
			shell(t, preludes[p.page]+standIn(text))
		})
	}
	for first := range notRun {
		if !used[first] {
			t.Errorf("no page has a block that begins with %q", first)
		}
	}
	for _, d := range devices {
		if !used[d] {
			t.Errorf("no page has a block that begins with %q", d)
		}
	}
}
