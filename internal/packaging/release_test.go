package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// read returns the text of a file of this module.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The image is linked with the flags of a release, so that chp version prints a version:
// the build has no .git.
func TestImageHasAVersion(t *testing.T) {
	t.Parallel()
	ldflags := regexp.MustCompile(`-ldflags="([^"]*)"`)
	image, release := read(t, "Dockerfile"), read(t, ".ci/release")
	ofImage, ofRelease := ldflags.FindStringSubmatch(image), ldflags.FindStringSubmatch(release)
	if ofImage == nil || ofRelease == nil {
		t.Fatalf("no -ldflags: %q, %q", ofImage, ofRelease)
	}
	if got, want := ofImage[1], strings.Replace(ofRelease[1], "$version", "$VERSION", 1); got != want {
		t.Errorf("the Dockerfile has %q, want %q as in .ci/release", got, want)
	}
	// An argument is known only in the stage and after the line that declares it.
	before, _, _ := strings.Cut(image, "RUN CGO_ENABLED=0 go build ")
	if _, stage, _ := strings.Cut(before, "FROM golang:"); !strings.Contains(stage, "\nARG VERSION=") {
		t.Error("the stage has no ARG VERSION before its build")
	}
	if !strings.Contains(image, "-p 127.0.0.1:5556-5558:5556-5558 ") {
		t.Error("the example publishes the ports to the network")
	}
}

// An archive has all files that its README links to.
func TestArchiveHasWhatItsReadmeLinksTo(t *testing.T) {
	t.Parallel()
	copied := regexp.MustCompile(`(?m)^cp -r (.*) "\$common"$`).FindStringSubmatch(read(t, ".ci/release"))
	if copied == nil {
		t.Fatal("the release copies no files")
	}
	names := strings.Fields(copied[1])
	links := 0
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(read(t, "README.md"), -1) {
		if strings.Contains(link[1], "://") {
			continue
		}
		links++
		if top, _, _ := strings.Cut(link[1], "/"); !slices.Contains(names, top) {
			t.Errorf("README.md links to %s, which is not in the archive", link[1])
		}
	}
	if links == 0 {
		t.Error("found no links")
	}
}

// The release script prints its usage, and takes no option for a directory.
func TestReleaseUsage(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skipf("needs bash: %v", err)
	}
	for arg, code := range map[string]int{"--help": 0, "-h": 0, "--nonsense": 2, "": 2} {
		cmd := exec.CommandContext(t.Context(), bash, filepath.Join(root, ".ci", "release"), arg)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code || !strings.HasPrefix(string(out), "usage: .ci/release DIR") {
			t.Errorf("%q: exit code %d, %s", arg, got, out)
		}
	}
}
