package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/chp/commit"
	"clustermap/chp/durable"
)

// addEntry appends an entry to the log in a directory.
func addEntry(t *testing.T, dir string, e commit.Entry) {
	t.Helper()
	l, err := durable.Open(dir, durable.Options{NoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Replay(func(commit.Entry) error { return nil })
	if err == nil {
		e.Index = l.Last() + 1
		err = l.Append(e)
	}
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
}

// setFormat changes the format of a file; the checksum of its head is at an offset.
func setFormat(t *testing.T, path string, format uint32, sum int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(b[8:], format)
	binary.BigEndian.PutUint32(b[sum:], crc32.Checksum(b[:sum], crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a newer version has written is refused with the number of its version, in the same
// words by all commands, and is not called damaged.
func TestNewerVersionIsRefusedByName(t *testing.T) {
	t.Parallel()
	backup := func(dir string) string {
		file := filepath.Join(t.TempDir(), "map.backup")
		must(t, "backup", dir, file)
		return file
	}
	newer := makeData(t, 20, 10)
	copied := backup(newer)
	setFormat(t, filepath.Join(newer, "meta"), 2, 44)
	setFormat(t, copied, 2, 60)
	kind := makeData(t, 20, 10)
	addEntry(t, kind, commit.Entry{Epoch: 3, First: 201, Count: 1, Kind: 9, Records: []byte("of a later version")})
	to := filepath.Join(t.TempDir(), "to")

	const format, kinds = " was written by a newer version (format 2; this program reads up to 1)", "entry 21 of the log was written by a newer version (entry kind 9; this program reads up to 6)"
	for _, c := range []struct {
		want string
		args []string
	}{
		{newer + "/meta" + format, []string{"fsck", newer}},
		{newer + "/meta" + format, []string{"fsck", "--json", newer}},
		{newer + "/meta" + format, []string{"backup", newer, filepath.Join(t.TempDir(), "b")}},
		{newer + "/meta" + format, []string{"serve", "--port", "0", "--data", newer}},
		{copied + format, []string{"fsck", copied}},
		{copied + format, []string{"restore", copied, to}},
		{kinds, []string{"fsck", kind}},
		{kinds, []string{"fsck", backup(kind)}},
		{kinds, []string{"restore", backup(kind), to}},
		{kinds, []string{"serve", "--port", "0", "--data", kind}},
	} {
		o := try(t, c.args...)
		o.expect(t, exitRefused, c.want+"\n")
		if strings.Contains(o.stderr, "damaged") || strings.Contains(o.out, "\nsound") || strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("%s: %s%s", o.name, o.out, o.stderr)
		}
	}
}

// An entry with a correct checksum that a server cannot replay is found by chp fsck, too.
func TestFsckFindsWhatServeRefuses(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]commit.Entry{
		"updates":  {Count: 1, Records: []byte("no update")},
		"sent":     {Kind: 1, Count: 1, Records: []byte("short")},
		"origins":  {Kind: 2, Records: []byte("short")},
		"identity": {Kind: 3, Records: []byte("short")},
		"reigns":   {Kind: 4, Records: []byte("short")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := makeData(t, 20, 10)
			e.First, e.Epoch = 201, 3
			addEntry(t, dir, e)
			o := try(t, "fsck", dir)
			o.expect(t, exitRefused, "is damaged")
			if !strings.Contains(o.out, "invalid entry 21 of kind") || !strings.Contains(o.out, ".wal at offset") {
				t.Error(o.out)
			}
			try(t, "serve", "--port", "0", "--data", dir).expect(t, exitRefused, "is damaged")
		})
	}
}

// A file that cannot be read is not called one that cannot be written.
func TestUnreadableData(t *testing.T) {
	t.Parallel()
	dir := makeData(t, 20, 10)
	meta := filepath.Join(dir, "meta")
	if err := errors.Join(os.Remove(meta), os.Mkdir(meta, 0o700)); err != nil {
		t.Fatal(err)
	}
	try(t, "serve", "--port", "0", "--data", dir).expect(t, exitRefused, "--data "+dir+": cannot read: read "+meta+": is a directory\n")
	try(t, "fsck", dir).expect(t, exitRefused, "cannot read: read "+meta+": is a directory\n")
}

// chp fsck and chp serve say what is missing from the end of a log.
func TestMissingEndOfLog(t *testing.T) {
	t.Parallel()
	dir := makeData(t, 50, 0)
	if err := os.Truncate(onlySegment(t, dir), 2000); err != nil {
		t.Fatal(err)
	}
	o := try(t, "fsck", dir)
	o.expect(t, exitRefused, "is damaged")
	for _, command := range []outcome{o, try(t, "serve", "--port", "0", "--data", dir)} {
		for _, want := range []string{filepath.Base(onlySegment(t, dir)), " of at least 50", "entry 50 ended at offset "} {
			if !strings.Contains(command.out+command.stderr, want) {
				t.Errorf("no %q in %s%s", want, command.out, command.stderr)
			}
		}
	}
}
