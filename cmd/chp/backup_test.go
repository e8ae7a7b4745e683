package main

import (
	"bytes"
	wire "encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/zmtp"
)

// makeData makes a directory with a log of entries of 10 updates each, and a
// checkpoint if it is above 0.
func makeData(t *testing.T, entries, checkpoint uint64) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	l, err := durable.Open(dir, durable.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Replay(func(commit.Entry) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := l.SetEpoch(3); err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		e := commit.Entry{Index: i + 1, Epoch: 3, First: 10*i + 1, Count: 10, Time: time.Now().UnixNano()}
		for j := range uint64(10) {
			var sequence [8]byte
			wire.BigEndian.PutUint64(sequence[:], e.First+j)
			e.Records = zmtp.AppendMessage(e.Records, fmt.Appendf(nil, "/key/%d", j), sequence[:], nil, nil, fmt.Appendf(nil, "value %d", i))
		}
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
		if i+1 == checkpoint {
			c, err := l.Checkpoint(checkpoint, 10*checkpoint)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.Append(e), c.Commit()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	l.Commit(entries)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// replay returns the content of a directory.
func replay(t *testing.T, dir string) (entries []commit.Entry, r commit.Replayed) {
	t.Helper()
	l, err := durable.Open(dir, durable.Options{NoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err = l.Replay(func(e commit.Entry) error {
		e.Records = bytes.Clone(e.Records)
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries, r
}

// onlySegment returns the path of the one segment with entries.
func onlySegment(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "log", "*.wal"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0]
}

// damage changes one byte of a file.
func damage(t *testing.T, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x10
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFsck(t *testing.T) {
	t.Parallel()
	dir := makeData(t, 50, 20)
	out := must(t, "fsck", dir)
	for _, want := range []string{"epoch 3", "checkpoint-0000000000000014: entry 20, sequence 200, 1 pieces, 10 updates", "50 entries, 1 to 50", "500 updates", "last sequence 500\n", "\nsound\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	o := object(t, must(t, "fsck", "--json", dir))
	if o["kind"] != "log" || o["sound"] != true || o["last_entry"] != 50.0 || o["last_sequence"] != "500" || o["epoch"] != "3" || o["defect"] != nil || o["unfinished"] != nil {
		t.Error(o)
	}
	if c, ok := o["checkpoint"].(map[string]any); !ok || c["entry"] != 20.0 || c["updates"] != 10.0 {
		t.Error(o)
	}
	if s, ok := o["segments"].([]any); !ok || len(s) != 1 || s[0].(map[string]any)["entries"] != 50.0 {
		t.Error(o)
	}

	// An unfinished write is no damage.
	file, err := os.OpenFile(onlySegment(t, dir), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	segment := o["segments"].([]any)[0].(map[string]any)
	if _, err := file.WriteAt([]byte("unfinished"), int64(segment["bytes"].(float64))); err != nil {
		t.Fatal(err)
	}
	file.Close()
	o = object(t, must(t, "fsck", "--json", dir))
	if torn, ok := o["unfinished"].(map[string]any); !ok || torn["bytes"] != 10.0 || torn["after_entry"] != 50.0 || o["sound"] != true {
		t.Error(o)
	}
	if out := must(t, "fsck", dir); !strings.Contains(out, "unfinished writes: 10 bytes") {
		t.Error(out)
	}

	// Damage to entries that were on the disk is a defect.
	damage(t, onlySegment(t, dir), int(segment["bytes"].(float64))/2)
	found := try(t, "fsck", dir)
	found.expect(t, exitRefused, "is damaged")
	if !strings.Contains(found.out, "\ndefect: ") || strings.Contains(found.out, "sound") {
		t.Error(found.out)
	}
	found = try(t, "fsck", "--json", dir)
	found.expect(t, exitRefused, "is damaged")
	o = object(t, found.out)
	defect, ok := o["defect"].(map[string]any)
	if !ok || o["sound"] != false || defect["lost_up_to_entry"] != 50.0 || defect["last_readable_entry"] != o["last_entry"] || defect["reason"] == "" {
		t.Error(o)
	}

	try(t, "fsck", filepath.Join(dir, "none")).expect(t, exitRefused, "no such file or directory")
	try(t, "fsck", t.TempDir()).expect(t, exitRefused, "there is no log")
	try(t, "fsck").expect(t, exitUsage, "takes 1 argument")
	try(t, "fsck", "a", "b").expect(t, exitUsage, "takes 1 argument")
}

// A restored backup of a directory has the content of the directory.
func TestBackupDirectory(t *testing.T) {
	t.Parallel()
	dir := makeData(t, 50, 20)
	out := t.TempDir()
	file, to := filepath.Join(out, "map.backup"), filepath.Join(out, "restored")
	o := try(t, "backup", dir, file)
	o.expect(t, exitDone, "saved 310 updates up to sequence 500 from "+dir+" to "+file)
	if got := must(t, "fsck", file); !strings.Contains(got, "31 entries, 310 updates\nlast sequence 500\nsound\n") {
		t.Error(got)
	}
	if o := object(t, must(t, "fsck", "--json", file)); o["kind"] != "backup" || o["sound"] != true || o["updates"] != 310.0 {
		t.Error(o)
	}
	o = try(t, "restore", file, to)
	o.expect(t, exitDone, "restored 310 updates up to sequence 500 from "+file+" to "+to)
	must(t, "fsck", to)
	want, before := replay(t, dir)
	have, after := replay(t, to)
	if len(have) != len(want) || after.Sequence != before.Sequence {
		t.Fatalf("%d entries, want %d", len(have), len(want))
	}
	for i := range want {
		have[i].Index = want[i].Index
		if fmt.Sprint(have[i]) != fmt.Sprint(want[i]) {
			t.Errorf("entry %d: %v, want %v", i, have[i], want[i])
		}
	}
	// An existing log stays unchanged.
	try(t, "restore", file, to).expect(t, exitRefused, "chp: "+to+" already has a log; choose another directory\n")
	if again, _ := replay(t, to); len(again) != len(have) {
		t.Error("the log that was there has changed")
	}
	damage(t, file, 2000)
	try(t, "restore", file, filepath.Join(out, "new")).expect(t, exitRefused, "wrong checksum")
	found := try(t, "fsck", file)
	found.expect(t, exitRefused, "is damaged")
	if !strings.Contains(found.out, "defect: ") {
		t.Error(found.out)
	}
	if _, err := os.Stat(filepath.Join(out, "new")); !errors.Is(err, os.ErrNotExist) {
		t.Error("restored from a damaged file:", err)
	}
	// A damaged backup is replaced by a good one.
	must(t, "backup", dir, file)
	must(t, "fsck", file)
	// There is no backup of a damaged directory, and the earlier backup stays.
	damage(t, onlySegment(t, dir), 3000)
	try(t, "backup", dir, file).expect(t, exitRefused, "corrupt")
	must(t, "fsck", file)

	try(t, "restore", filepath.Join(out, "none"), filepath.Join(out, "new")).expect(t, exitRefused, "no such file")
	try(t, "backup", filepath.Join(out, "none"), file).expect(t, exitRefused, "no such file")
	try(t, "backup", dir, out).expect(t, exitRefused, "not a regular file")
	found = try(t, "backup", "--server", "tcp://127.0.0.1:1", dir, file)
	found.expect(t, exitUsage, "not both")
	for _, args := range [][]string{{"backup"}, {"backup", "a", "b", "c"}, {"restore", "a"}, {"restore"}} {
		try(t, args...).expect(t, exitUsage, "argument")
	}
	found = try(t, "backup", "--timeout", "200ms", "--server", "tcp://127.0.0.1:1", filepath.Join(out, "other"))
	found.expect(t, exitNoServer, "no CHP server answered")
	list, _ := filepath.Glob(filepath.Join(out, "*"))
	if !slices.Equal(list, []string{file, to}) {
		t.Error(list)
	}
}

// A backup of a running server holds its keys with their sequences, properties and
// UUIDs, and the times to live that are left.
func TestBackupOfServer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	want := fill(t, s, 300)
	must(t, "set", "/lease", "on lease", "--ttl", "1h", "--server", s.endpoint)
	last := strings.TrimSpace(must(t, "set", "/fill/0", "changed", "--server", s.endpoint))
	want["/lease"], want["/fill/0"] = "on lease", "changed"

	out := t.TempDir()
	file, dir := filepath.Join(out, "map.backup"), filepath.Join(out, "data")
	o := try(t, "backup", "--server", s.endpoint, file)
	o.expect(t, exitDone, "saved 301 keys at sequence "+last+" from "+s.endpoint+" to "+file)
	if got := must(t, "fsck", file); !strings.Contains(got, "301 updates\nlast sequence "+last+"\nsound\n") {
		t.Error(got)
	}
	must(t, "restore", file, dir)
	entries, r := replay(t, dir)
	if fmt.Sprint(r.Sequence) != last {
		t.Errorf("sequence %d, want %s", r.Sequence, last)
	}
	have := map[string]string{}
	for _, e := range entries {
		if e.Kind != commit.KindRecords {
			continue // the identity of the map
		}
		for left := e.Records; len(left) > 0; {
			var frames [5][]byte
			for i := range frames {
				n, head := int(left[1]), 2
				if left[0]&2 != 0 {
					n, head = int(wire.BigEndian.Uint64(left[1:])), 9
				}
				frames[i], left = left[head:head+n], left[head+n:]
			}
			key, sequence, uuid, properties := string(frames[0]), wire.BigEndian.Uint64(frames[1]), frames[2], string(frames[3])
			have[key] = string(frames[4])
			if sequence > r.Sequence || len(uuid) != 16 || key == "/fill/0" && sequence != r.Sequence {
				t.Errorf("%s: sequence %d, UUID %x", key, sequence, uuid)
			}
			if key == "/lease" != strings.Contains(properties, "ttl=3") {
				t.Errorf("%s: properties %q", key, properties)
			}
		}
	}
	if len(have) != len(want) {
		t.Errorf("%d keys, want %d", len(have), len(want))
	}
	for key, value := range want {
		if have[key] != value {
			t.Errorf("%s: %q, want %q", key, have[key], value)
		}
	}
}

// A backup says that it replaces a file, and names the directory that it cannot write to,
// not the unfinished file.
func TestBackupFile(t *testing.T) {
	t.Parallel()
	dir, s := makeData(t, 3, 0), serve(t)
	file, nowhere := filepath.Join(t.TempDir(), "map.backup"), filepath.Join(t.TempDir(), "nowhere")
	for _, from := range [][]string{{"backup", dir}, {"backup", "--server", s.endpoint}} {
		os.Remove(file)
		for i := range 2 {
			o := try(t, append(from, file)...)
			o.expect(t, exitDone, " to "+file)
			if got := strings.HasSuffix(o.stderr, ", which replaced the file of that name\n"); got != (i > 0) {
				t.Errorf("%d: %s", i, o.stderr)
			}
		}
		o := try(t, append(from, filepath.Join(nowhere, "map.backup"))...)
		o.expect(t, exitRefused, "cannot create a file in the directory "+nowhere+": no such file or directory\n")
		if strings.Contains(o.stderr, ".tmp") {
			t.Error(o.stderr)
		}
	}
}

// A backup that is killed leaves no file of its name, or the earlier backup.
func TestBackupKilled(t *testing.T) {
	t.Parallel()
	dir := makeData(t, 20_000, 0)
	out := t.TempDir()
	file := filepath.Join(out, "map.backup")
	killed := 0
	var left []string
	for i := range 6 {
		p := start(t, "backup", dir, file)
		// Kill it when its temporary file is there, or at some time after.
		for {
			if found, _ := filepath.Glob(file + ".*.tmp"); len(found) > 0 && !slices.Equal(found, left) {
				break
			}
			select {
			case <-p.waited:
			case <-time.After(time.Millisecond):
				continue
			}
			break
		}
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		p.cmd.Process.Kill()
		p.wait()
		found, _ := filepath.Glob(file + ".*.tmp")
		if len(found) > 1 {
			t.Errorf("files of earlier backups are left: %q", found)
		}
		killed += len(found)
		left = found
		if _, err := os.Stat(file); err == nil {
			must(t, "fsck", file)
			if i%2 == 0 {
				os.Remove(file)
			}
		}
	}
	t.Log("killed in the middle:", killed)
	must(t, "backup", dir, file)
	must(t, "fsck", file)
	if found, _ := filepath.Glob(file + ".*.tmp"); len(found) > 0 {
		t.Errorf("%q are left", found)
	}
}

// A file that is no backup is called that, not damaged.
func TestNotABackup(t *testing.T) {
	t.Parallel()
	dir := makeData(t, 3, 0)
	for _, file := range []string{filepath.Join(dir, "meta"), onlySegment(t, dir), os.DevNull} {
		for _, o := range []outcome{try(t, "fsck", file), try(t, "restore", file, filepath.Join(t.TempDir(), "new"))} {
			o.expect(t, exitRefused, "chp: "+file+" is not a backup\n")
			if strings.Contains(o.stderr, "damaged") || strings.Contains(o.stderr, "corrupt") {
				t.Error(o.stderr)
			}
		}
	}
}

func TestDataHelp(t *testing.T) {
	t.Parallel()
	root := must(t, "--help")
	for _, name := range []string{"backup", "restore", "fsck"} {
		if !strings.Contains(root, "\n  "+name+" ") {
			t.Errorf("chp --help does not list %s", name)
		}
		text := must(t, name, "--help")
		if !strings.Contains(text, "Usage:\n  chp "+name) || !strings.Contains(text, "Examples:") {
			t.Errorf("chp %s --help: %s", name, text)
		}
	}
}
