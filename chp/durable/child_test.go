package durable

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
)

// childVariable makes this test binary run a part of a test in a process of its own.
const childVariable = "CLUSTERMAP_DURABLE_CHILD"

// kills is how often TestKill kills.
var kills = flag.Int("kills", 12, "number of kills of TestKill; each takes about 0.1 s")

// tasks are what a child can do with a directory.
var tasks = map[string]func(dir string) error{"hold": hold, "write": write}

// child runs the task that the environment names, and reports whether there was one.
func child() bool {
	task, dir, found := strings.Cut(os.Getenv(childVariable), ":")
	if !found {
		return false
	}
	if err := tasks[task](dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// hold has the log open until it is killed or its input ends.
func hold(dir string) error {
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		return err
	}
	fmt.Println("open")
	io.Copy(io.Discard, os.Stdin)
	return l.Close()
}

// write appends, and prints each index that is on the disk, until it is killed.
// Now and then it makes a checkpoint.
func write(dir string) error {
	l, _, err := tryOpen(dir, file.Real)
	if err != nil {
		return err
	}
	ctx := context.Background()
	g := commit.NewGroup(l, commit.GroupOptions{
		Policy:    commit.Always(),
		Bytes:     100 << 10,
		OnDurable: func(index uint64) { fmt.Println(index) },
	})
	for {
		index, err := g.Append(ctx, entry(l.Last()+1))
		for i := 0; err == nil && i < 40; i++ {
			index, err = g.Append(ctx, entry(index+1))
		}
		if err == nil && index%7 == 0 {
			err = g.Wait(ctx, index)
			if err == nil {
				var c commit.Checkpoint
				c, err = l.Checkpoint(index, index)
				if err == nil {
					err = errors.Join(c.Append(entry(1)), c.Commit())
				}
			}
		}
		if err == nil {
			// The next one follows the last one that was given out.
			err = g.Flush(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func startChild(t *testing.T, task, dir string) (*exec.Cmd, io.ReadCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+task+":"+dir)
	errs, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = errs
	// Its input ends when this process does.
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		if said, err := os.ReadFile(errs.Name()); t.Failed() {
			t.Logf("the child's errors: %s %v", said, err)
		}
		errs.Close()
	})
	return cmd, out
}

// TestSecondProcess: while a process has the log open, another gets a clear
// error. The lock goes with the process, however that ends.
func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	cmd, out := startChild(t, "hold", dir)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatal(line, err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, commit.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Error("while another process has it:", err)
	}
	if report, err := Check(dir, nil); err != nil || report.Defect != nil {
		t.Error("Check while another process has it:", err, report)
	}
	cmd.Process.Kill()
	cmd.Wait()
	l, _ := mustOpen(t, dir)
	closeLog(t, l)
}

// TestKill kills a process that appends, again and again. The entries that it has
// reported to be on the disk are there afterwards, and the log is a prefix of the entries
// that it has written.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	var acknowledged, torn, last uint64
	for round := range *kills {
		cmd, out := startChild(t, "write", dir)
		lines := bufio.NewScanner(out)
		timer := (*time.Timer)(nil)
		for lines.Scan() {
			index, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				// The last line may be cut off in its middle, but not this one: a
				// line is one write to a pipe.
				t.Fatal(err)
			}
			acknowledged = index
			if timer == nil {
				timer = time.AfterFunc(time.Duration(rand.IntN(60_000))*time.Microsecond, func() { cmd.Process.Kill() })
			}
		}
		err := cmd.Wait()
		if timer == nil {
			t.Fatalf("round %d: the process ended without an acknowledgement: %v", round, err)
		}
		report, err := Check(dir, nil)
		if err != nil || report.Defect != nil {
			t.Fatalf("round %d: %v\n%v", round, err, report)
		}
		l, r, err := tryOpen(dir, file.Real)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if r.Last < acknowledged {
			t.Fatalf("round %d: %d was acknowledged: %+v", round, acknowledged, r)
		}
		if r.Torn != nil {
			torn++
		}
		last = r.Last
		if round%2 == 0 {
			closeLog(t, l) // else the next process finds a log that was not closed
		} else {
			l.lock.Close()
			l.w.Close()
			l.closed = true
		}
	}
	t.Logf("%d kills, %d entries, %d acknowledged, %d torn ends", *kills, last, acknowledged, torn)
}
