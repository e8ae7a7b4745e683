package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"clustermap/internal/testenv"
)

// command runs a program in a folder, with variables in addition to the environment.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(testenv.Context(t), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestPublish: a copy that .ci/publish makes can be fetched by its path from a proxy, and a
// program outside of it builds and runs with it.
func TestPublish(t *testing.T) {
	t.Parallel()
	const path, version = "github.com/a-host/clustermap", "v0.3.1-rc.1"
	identity := []string{"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES=" + os.TempDir()}
	cached := strings.TrimSpace(command(t, root, nil, "go", "env", "GOMODCACHE"))

	// A copy of this folder as it is, with what is not committed.
	from := filepath.Join(t.TempDir(), "from")
	if err := os.Mkdir(from, 0o700); err != nil {
		t.Fatal(err)
	}
	command(t, root, nil, "bash", "-euo", "pipefail", "-c", `tar -c --exclude=./.git . | tar -xC "$1"`, "bash", from)
	command(t, from, identity, "bash", "-euc", "git init -q; git add .; git commit -qm 'the copy'")
	published := filepath.Join(t.TempDir(), "published")
	// Compiling everything takes long. That what all packages import is there is seen below, and
	// that a server and a client work by the program.
	out := command(t, from, append(identity, "GOPROXY=off"), ".ci/publish", "--only", "./chp/commit", "--to", published, path, version)
	if !strings.Contains(out, path+" "+version+" is tagged in "+published) {
		t.Errorf("the script says: %s", out)
	}

	// Nothing has the old path, except for what is a name; and the README says what to type.
	left := command(t, published, nil, "bash", "-c", `git grep -nIE '(^|[^A-Za-z0-9_./-])clustermap(/(bench|chp|cmd|examples|internal|patterns|sockets|test|zmtp)\b| (=>|v0))' -- '*.go' '*.mod' '*.md' packaging .ci/release Dockerfile || true`)
	if left != "" {
		t.Errorf("these have the old path:\n%s", left)
	}
	command(t, published, append(identity, "GOPROXY=off"), "go", "list", "-deps", "-test", "./...")
	readme, err := os.ReadFile(filepath.Join(published, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(readme); !strings.Contains(text, "\ngo get "+path+"@"+version+"\n") || !strings.Contains(text, `"`+path+`/chp"`) || strings.Contains(text, "not hosted") {
		t.Error("the README has no go get of the published module")
	}
	if status := command(t, from, identity, "git", "status", "--porcelain") + command(t, from, identity, "git", "tag"); status != "" {
		t.Errorf("the script has changed the folder that it was called in: %s", status)
	}

	// A proxy of files, as a host's looks.
	proxy := filepath.Join(t.TempDir(), "proxy")
	versions := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(versions, 0o700); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Create(filepath.Join(versions, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromVCS(archive, module.Version{Path: path, Version: version}, published, version, ""); err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile(filepath.Join(published, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Must(t, archive.Close())
	testenv.Must(t, os.WriteFile(filepath.Join(versions, version+".mod"), gomod, 0o600))
	testenv.Must(t, os.WriteFile(filepath.Join(versions, version+".info"), fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-02T03:04:05Z"}`, version), 0o600))
	testenv.Must(t, os.WriteFile(filepath.Join(versions, "list"), []byte(version+"\n"), 0o600))

	// Somebody's module.
	outside := t.TempDir()
	testenv.Must(t, os.WriteFile(filepath.Join(outside, "main.go"), []byte(`package main

import (
	"context"
	"fmt"
	"log"

	"`+path+`/chp"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := chp.NewServer(chp.ServerOptions{Endpoints: []string{"ipc://map"}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Listen(ctx); err != nil {
		log.Fatal(err)
	}
	go s.Serve(ctx)
	c, err := chp.NewClient(chp.ClientOptions{Servers: []string{"ipc://map"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.SetSync(ctx, "/colour", []byte("red")); err != nil {
		log.Fatal(err)
	}
	value, _ := c.Get("/colour")
	fmt.Printf("%s\n", value)
}
`), 0o600))
	env := []string{"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cached, "cache", "download"), "GOSUMDB=off", "GOWORK=off",
		"GOFLAGS=-modcacherw -gcflags=" + path + "/...=-N", "GOMODCACHE=" + filepath.Join(t.TempDir(), "modules"), "GOTOOLCHAIN=local"}
	command(t, outside, env, "go", "mod", "init", "example.com/outside")
	command(t, outside, env, "go", "get", path+"/chp@"+version)
	if out := command(t, outside, env, "go", "run", "."); out != "red\n" {
		t.Errorf("the program prints %q", out)
	}
	if listed := command(t, outside, env, "go", "list", "-m", path); listed != path+" "+version+"\n" {
		t.Errorf("the program has %q", listed)
	}
}

// .ci/publish refuses what the go command would refuse when somebody fetches it, before it
// does anything.
func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"example.com/clustermap"}, {"clustermap", "v0.1.0"}, {"example.com", "v0.1.0"}, {"example.com/clustermap", "0.1.0"}, {"example.com/clustermap", "v1.2"},
		{"example.com/clustermap", "v2.0.0"}, {"example.com/clustermap/v2", "v1.0.0"}, {"example.com/clustermap/v3", "v2.0.0"}, {"https://example.com/clustermap", "v0.1.0"},
		{"example.com/cluster map", "v0.1.0"}, {"--nonsense", "example.com/clustermap", "v0.1.0"}, {"--here", "--to", "x", "example.com/clustermap", "v0.1.0"},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, ".ci", "publish"), args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), "usage: .ci/publish ") {
			t.Errorf("%q: exit code %d, %s", args, code, out)
		}
	}
}
