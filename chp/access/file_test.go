package access

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/testenv"
)

// write writes a file, and replaces it as editors do.
func write(t testing.TB, name, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(name+".new", []byte(text), 0o600), os.Rename(name+".new", name)); err != nil {
		t.Fatal(err)
	}
}

const one, two = "[users.a]\n[[rules]]\nwho=['a']\nread=['/a/']\n", "[users.a]\n[[rules]]\nwho=['a']\nread=['/b/']\n"

// What was read before the policy in force does not take its place: two may read the file at the same time.
func TestOlderPolicyHasNoEffect(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "access.toml")
	write(t, name, one)
	f, err := Open(name)
	testenv.Must(t, err)
	write(t, name, two)
	older, err := f.Load()
	testenv.Must(t, err)
	write(t, name, one+"\n")
	if changed, err := f.Reload(); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if f.Set(older) || f.Policy() == older {
		t.Error("the older policy is in force")
	}
	given, err := Parse([]byte(two))
	testenv.Must(t, err)
	if !f.Set(given) {
		t.Error("a policy that was not read has no effect")
	}
}

// A file is read again when that is asked for; one with a mistake changes nothing.
func TestFileIsReadAgain(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "access.toml")
	if _, err := Open(name); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("no file: %v", err)
	}
	write(t, name, "[")
	if _, err := Open(name); err == nil {
		t.Fatal("a broken file is opened")
	}
	write(t, name, one)
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	step := func(text string, want, wrong bool, reads string) {
		t.Helper()
		write(t, name, text)
		was := f.Changed()
		changed, err := f.Reload()
		if changed != want || (err != nil) != wrong {
			t.Errorf("%q: %v, %v", text, changed, err)
		}
		select {
		case <-was:
			if !want {
				t.Error("nothing has changed, and the channel is closed")
			}
		default:
			if want {
				t.Error("the channel is open")
			}
		}
		if f.Policy().Allow("a", chp.VerbRead, reads) != nil {
			t.Errorf("%q: %s may not be read", text, reads)
		}
	}
	step(one, false, false, "/a/")
	step(two, true, false, "/b/")
	step("[", false, true, "/b/")
	step("[", false, true, "/b/") // who asks again hears it again
	step(one, true, false, "/a/")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Reload(); !errors.Is(err, os.ErrNotExist) || f.Policy().Allow("a", chp.VerbRead, "/a/") != nil {
		t.Errorf("without the file: %v", err)
	}
}

// A file that is watched is read when it has changed, and a mistake is reported once.
func TestFileIsWatched(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "access.toml")
	write(t, name, one)
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	reports := make(chan error, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Watch(t.Context(), time.Millisecond, func(err error) { reports <- err })
	}()
	t.Cleanup(func() { <-done }) // the context of the test has ended
	write(t, name, "[")
	if err := <-reports; err == nil {
		t.Error("no error of a broken file")
	}
	write(t, name, two)
	if err := <-reports; err != nil {
		t.Errorf("after the change: %v", err)
	}
	testenv.Eventually(t, "the new policy", func() bool { return f.Policy().Allow("a", chp.VerbRead, "/b/") == nil })
	if len(reports) > 0 {
		t.Errorf("another report: %v", <-reports)
	}
}
