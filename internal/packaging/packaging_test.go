// Package packaging has tests of the systemd unit, the Dockerfile and the release.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestUnit: systemd knows every line of the unit, and the unit has the lines that a
// server needs.
func TestUnit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "packaging", "chp.service"))
	if err != nil {
		t.Fatal(err)
	}
	section, found := "", map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, value, setting := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = line
		case setting && section != "":
			found[section+name] = value
		default:
			t.Errorf("not a setting: %s", line)
		}
	}
	for name, want := range map[string]string{
		"[Service]Type": "notify", "[Service]TimeoutStartSec": "infinity", "[Service]DynamicUser": "yes", "[Service]StateDirectory": "chp", "[Service]KillSignal": "SIGTERM", "[Service]ProtectSystem": "strict",
		"[Service]NoNewPrivileges": "yes", "[Service]Restart": "on-failure", "[Service]RestartPreventExitStatus": "2", "[Install]WantedBy": "multi-user.target",
		"[Service]ExecStart":  "/usr/bin/chp serve --data %S/chp $CHP_FLAGS",
		"[Service]ExecReload": "", // SIGHUP ends a server that has no file of keys to read again
	} {
		if found[name] != want {
			t.Errorf("%s is %q, want %q", name, found[name], want)
		}
	}

	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skipf("the rest needs systemd-analyze: %v", err)
	}
	// chp and its pages are not installed here.
	installed := strings.NewReplacer("/usr/bin/chp", "/bin/sh", "Documentation=man:chp-serve(1)\n", "").Replace(string(text))
	file := filepath.Join(t.TempDir(), "chp.service")
	if err := os.WriteFile(file, []byte(installed), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), verify, "verify", "--man=no", file).CombinedOutput()
	if err != nil || strings.Contains(string(out), "chp.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestDockerfile: the files that the Dockerfile copies exist or were built, and the image
// runs a static binary without privileges.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	built := map[string]bool{}
	last := map[string]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		last[words[0]] = strings.Join(words[1:], " ")
		switch words[0] {
		case "FROM":
			if version, ok := strings.CutPrefix(words[1], "golang:"); ok && !strings.Contains(string(module), "\ngo "+version) {
				t.Errorf("%s is not the Go release of go.mod", words[1])
			}
		case "RUN":
			for i, word := range words {
				if word == "-o" {
					for _, pkg := range words[i+2:] {
						if info, err := os.Stat(filepath.Join(root, pkg)); err != nil || !info.IsDir() {
							t.Errorf("%s: %v", pkg, err)
						}
						built[words[i+1]+filepath.Base(pkg)] = true
					}
				}
			}
			if words[1] == "mkdir" {
				built[words[len(words)-1]] = true
			}
		case "COPY":
			fromBuild := slices.Contains(words, "--from=build")
			for _, source := range words[1 : len(words)-1] {
				if strings.HasPrefix(source, "--") || fromBuild && built[source] {
					continue
				}
				if _, err := os.Stat(filepath.Join(root, source)); fromBuild || err != nil {
					t.Errorf("nothing makes %s: %s", source, line)
				}
			}
		}
	}
	for word, want := range map[string]string{"FROM": "scratch", "USER": "65532:65532", "VOLUME": "/var/lib/chp", "ENTRYPOINT": `["/chp"]`} {
		if last[word] != want {
			t.Errorf("%s is %q, want %q", word, last[word], want)
		}
	}
	if !strings.Contains(string(text), "RUN CGO_ENABLED=0 go build ") {
		t.Error("the binaries are not static")
	}
}
