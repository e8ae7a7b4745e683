package durable

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
	"clustermap/chp/durable/internal/format"
	"clustermap/chp/durable/internal/segment"
	"clustermap/internal/testenv"
)

// nobody is a user who is not root.
const nobody = 65534

func init() { tasks["open as nobody"] = openAsNobody }

// openAsNobody opens a log as a user whom permissions bind, and prints what came of it.
func openAsNobody(dir string) error {
	if os.Geteuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	l, _, err := tryOpen(dir, file.Real)
	if err == nil {
		err = l.Append(entry(l.Last() + 1))
		err = errors.Join(err, l.Close())
	}
	_, checked := Check(dir, nil)
	fmt.Println(kindOf(err), "check:", kindOf(checked), err)
	return nil
}

func kindOf(err error) string {
	switch {
	case err == nil:
		return "fine"
	case errors.Is(err, commit.ErrUnreadable) && errors.Is(err, commit.ErrReadOnly):
		return "both"
	case errors.Is(err, commit.ErrUnreadable):
		return "unreadable"
	case errors.Is(err, commit.ErrReadOnly):
		return "unwritable"
	}
	return "other"
}

// TestPermissions: a log that may not be written where that is needed only later fails when it
// is opened, and what cannot be read is not called unwritable.
func TestPermissions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, path string
		mode       os.FileMode
		want       string
	}{
		{"all right", ".", 0o700, "fine check: fine"},
		{"directory not writable", ".", 0o500, "unwritable check: fine"},
		{"directory of segments not writable", format.LogName, 0o500, "unwritable check: fine"},
		{"metadata not readable", format.MetaName, 0, "unreadable check: unreadable"},
		{"mark not readable", format.EndName, 0, "unreadable check: unreadable"},
		{"checkpoint not readable", format.CheckpointName(10), 0, "unreadable check: unreadable"},
		{"directory of segments not readable", format.LogName, 0o300, "unreadable check: unreadable"},
		{"segment not readable", "SEGMENT", 0, "unreadable check: unreadable"},
		{"segment not writable", "SEGMENT", 0o400, "unwritable check: fine"},
		{"directory not readable", ".", 0o300, "unreadable check: other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			dir := filepath.Join(top, "data")
			l, _ := mustOpen(t, dir)
			fill(t, l, 20, 2)
			writeCheckpoint(t, l, 10, 3)
			closeLog(t, l)
			if os.Geteuid() == 0 {
				// The way to the directory, and everything in it, is the user's.
				at := top
				for ; at != filepath.Clean(os.TempDir()) && at != "/"; at = filepath.Dir(at) {
					testenv.Must(t, os.Chmod(at, 0o755))
				}
				for ; at != "/"; at = filepath.Dir(at) {
					if st, err := os.Stat(at); err != nil || st.Mode().Perm()&1 == 0 {
						t.Skipf("only root reaches %s: %v", at, err)
					}
				}
				testenv.Must(t, filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
					return errors.Join(err, os.Chown(path, nobody, nobody))
				}))
			}
			path := filepath.Join(dir, c.path)
			if c.path == "SEGMENT" {
				all, err := segment.List(filepath.Join(dir, format.LogName))
				testenv.Must(t, err)
				path = all[0].Path
			}
			testenv.Must(t, os.Chmod(path, c.mode))
			t.Cleanup(func() { testenv.Must(t, os.Chmod(path, 0o700)) })
			_, out := startChild(t, "open as nobody", dir)
			line, err := bufio.NewReader(out).ReadString('\n')
			if !strings.HasPrefix(line, c.want) {
				t.Errorf("%s%v, want %s", line, err, c.want)
			}
		})
	}
}
