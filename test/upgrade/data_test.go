//go:build unix

package upgrade

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// contents is a map as the file beside a fixture has it: a line for itself, and a line for
// each entry.
type contents struct {
	Clock    time.Time // when the times to live were left
	Sequence int64     // the last one of the map
	Entries  []entry   `json:"-"` // sorted by key
}

type entry struct {
	Key        []byte
	Value      []byte
	Properties string        `json:",omitempty"`
	Sequence   int64         // of the last update
	TTL        time.Duration `json:",omitempty"` // at Clock; 0 if the key does not expire
}

// look returns what a client sees of its server's map.
func look(c *chp.Client) contents {
	m := contents{Clock: time.Now(), Sequence: c.Sequence()}
	for e := range c.Sorted("") {
		m.Entries = append(m.Entries, entry{
			Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value), Properties: string(e.Properties), Sequence: e.Sequence, TTL: e.TTL,
		})
	}
	return m
}

// readContents reads the file beside a fixture.
func readContents(t testing.TB, name string) contents {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".json"))
	testenv.Must(t, err)
	defer f.Close()
	var m contents
	d := json.NewDecoder(f)
	testenv.Must(t, d.Decode(&m))
	for d.More() {
		var e entry
		testenv.Must(t, d.Decode(&e))
		m.Entries = append(m.Entries, e)
	}
	return m
}

// write writes the file.
func (m contents) write(t testing.TB, name string) {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	testenv.Must(t, e.Encode(m))
	for _, one := range m.Entries {
		testenv.Must(t, e.Encode(one))
	}
	testenv.Must(t, os.WriteFile(filepath.Join("testdata", name+".json"), out.Bytes(), 0o666))
}

// grace is one that no test outlasts: what ended long ago is in the map, too.
const grace = time.Hour

// tolerance is how much a time to live may differ: the resolution on the wire and at both
// ends.
const tolerance = 50 * time.Millisecond

// equal checks that a client has a map: keys, values, properties and sequences are the same,
// and each time to live ends when it did, by the clock of the machine, but not before the
// grace has passed of the server that began a moment ago. A client can take it to be as much
// longer as its snapshot took, and so can the one that wrote the file.
func (m contents) equal(t testing.TB, c *chp.Client, begun time.Time, grace time.Duration) {
	t.Helper()
	got := look(c)
	slack := got.Clock.Sub(begun) + tolerance
	key := func(a, b entry) int { return bytes.Compare(a.Key, b.Key) }
	for _, e := range got.Entries {
		if _, found := slices.BinarySearchFunc(m.Entries, e, key); !found {
			t.Errorf("the map has %q", e.Key)
		}
	}
	for _, want := range m.Entries {
		i, found := slices.BinarySearchFunc(got.Entries, want, key)
		if !found {
			t.Errorf("%q is not in the map", want.Key)
			continue
		}
		e := got.Entries[i]
		left, slack := want.TTL, slack
		if left > 0 {
			left = max(left-max(got.Clock.Sub(m.Clock), 0), grace-got.Clock.Sub(begun), 1)
		}
		if got.Clock.Before(m.Clock) {
			slack += time.Minute // a clock that is behind: no time has passed since the update
		}
		if d := e.TTL - left; d < -slack || d > slack || (e.TTL == 0) != (left == 0) {
			t.Errorf("%q has %v to live, want %v", want.Key, e.TTL, left)
		}
		// The client has a time to live in the properties as it was in the snapshot.
		if e.Properties, want.Properties = lasting(e.Properties), lasting(want.Properties); e.Properties != want.Properties {
			t.Errorf("%q has properties %q, want %q", want.Key, e.Properties, want.Properties)
		}
		if !bytes.Equal(e.Value, want.Value) {
			t.Errorf("%q is %.100q, want %.100q", want.Key, e.Value, want.Value)
		}
		if e.Sequence != want.Sequence {
			t.Errorf("%q has sequence %d, want %d", want.Key, e.Sequence, want.Sequence)
		}
	}
}

// lasting returns properties without ttl.
func lasting(properties string) string {
	var all strings.Builder
	for line := range strings.Lines(properties) {
		if !strings.HasPrefix(line, "ttl=") {
			all.WriteString(line)
		}
	}
	return all.String()
}

// fixtures unpacks what the earlier version wrote.
func fixtures(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(filepath.Join("testdata", archiveName))
	testenv.Must(t, err)
	defer f.Close()
	r, err := expand(f)
	testenv.Must(t, err)
	testenv.Must(t, unpack(r, dir))
	return dir
}

// sound checks that fsck finds nothing wrong.
func sound(t testing.TB, path string) {
	t.Helper()
	if out := today(t).Must(t, "fsck", "--json", path); commandtest.Object(t, strings.TrimSpace(out))["sound"] != true {
		t.Errorf("%s is not sound: %s", filepath.Base(path), out)
	}
}

// goOn opens a directory as a server of this version does, checks that it has a map, and
// that it goes on: writes, is killed, writes, stops. It returns the map in the end.
func goOn(t *testing.T, dir string, m contents) contents {
	t.Helper()
	sound(t, dir)
	ctx := testenv.Context(t)
	start := func(grace time.Duration) (*server, *chp.Client, time.Time) {
		t.Helper()
		begun := time.Now()
		s := serve(t, today(t), "--host", loopback.Own(), "--data", dir, "--sync", "always", "--expiry-grace", grace.String())
		return s, connect(t, s.endpoint), begun
	}
	s, c, begun := start(grace)
	m.equal(t, c, begun, grace)

	properties := chp.WithProperty("origin", "today")
	seq, err := c.SetSync(ctx, "/today", []byte("1"), properties)
	testenv.Must(t, err)
	if seq <= m.Sequence {
		t.Errorf("sequence %d after %d", seq, m.Sequence)
	}
	m.put(entry{Key: []byte("/today"), Value: []byte("1"), Properties: "origin=today\n", Sequence: seq})
	_, err = c.DeleteSync(ctx, "/deleted/again")
	testenv.Must(t, err)
	m.remove("/deleted/again")
	s.kill(t)
	sound(t, dir)

	s, c, begun = start(grace)
	m.equal(t, c, begun, grace)
	seq, err = c.SetSync(ctx, "/today", []byte{0, 0xff}, chp.WithTTL(2*grace))
	testenv.Must(t, err)
	m.put(entry{Key: []byte("/today"), Value: []byte{0, 0xff}, Sequence: seq, TTL: 2*grace + time.Since(m.Clock)})
	s.end(t)
	sound(t, dir)

	// Without a grace it is deleted.
	s, c, begun = start(0)
	m.Entries = slices.DeleteFunc(m.Entries, func(e entry) bool { return e.TTL > 0 && e.TTL < time.Since(m.Clock) })
	testenv.Eventually(t, "what ended is deleted", func() bool { return c.Len() == len(m.Entries) })
	m.equal(t, c, begun, 0)
	s.end(t)
	return m
}

// put sets a key.
func (m *contents) put(e entry) {
	m.remove(string(e.Key))
	m.Entries = append(m.Entries, e)
	slices.SortFunc(m.Entries, func(a, b entry) int { return bytes.Compare(a.Key, b.Key) })
}

// remove deletes a key.
func (m *contents) remove(key string) {
	m.Entries = slices.DeleteFunc(m.Entries, func(e entry) bool { return string(e.Key) == key })
}

// TestDataOfEarlierVersion: a server opens what the earlier version wrote into a directory,
// serves the same map, and goes on. One server was stopped, the other one killed.
func TestDataOfEarlierVersion(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"stopped", "killed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := readContents(t, name)
			if n := len(m.Entries); n < 50 {
				t.Fatalf("the fixture has %d keys", n)
			}
			goOn(t, filepath.Join(fixtures(t), name), m)
		})
	}
}

// TestBackupOfEarlierVersion: a backup that the earlier version made, of a directory and of
// a server, restores the same map.
func TestBackupOfEarlierVersion(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"directory.backup", "server.backup"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, dir := filepath.Join(fixtures(t), name), filepath.Join(t.TempDir(), "map")
			sound(t, file)
			today(t).Must(t, "restore", file, dir)
			goOn(t, dir, readContents(t, "stopped"))
		})
	}
}

// TestDataOfEarlierVersionIsWhatItServes makes the fixtures with -update, and otherwise
// checks them where the earlier version can be built: it serves what the files beside them
// say. It also does so after this version has used the directory.
func TestDataOfEarlierVersionIsWhatItServes(t *testing.T) {
	t.Parallel()
	program := old(t)
	if testenv.Update() {
		makeFixtures(t)
	}
	dir := fixtures(t)
	for _, name := range []string{"stopped", "killed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, data := readContents(t, name), filepath.Join(dir, name)
			serves := func() {
				t.Helper()
				begun := time.Now()
				s := serve(t, program, "--host", loopback.Own(), "--data", data, "--expiry-grace", grace.String())
				m.equal(t, connect(t, s.endpoint), begun, grace)
				s.end(t)
			}
			serves()
			m = goOn(t, data, m)
			serves()
		})
	}
}

// makeFixtures has the earlier version write directories and backups.
func makeFixtures(t *testing.T) {
	dir := t.TempDir()
	var loaded strings.Builder
	for i := range 20 {
		fmt.Fprintf(&loaded, `{"key":"/loaded/%02d","value":"%d"}`+"\n", i, i)
	}
	fmt.Fprintln(&loaded, `{"key":"/loaded/session","value":"1","ttl":315360000}`)
	fmt.Fprintln(&loaded, `{"key":"/loaded/past","value":"1","ttl":60}`)
	fmt.Fprintln(&loaded, `{"key_base64":"/wFr","value_base64":"AP8A"}`)
	dump := filepath.Join(t.TempDir(), "dump")
	testenv.Must(t, os.WriteFile(dump, []byte(loaded.String()), 0o600))

	for _, name := range []string{"stopped", "killed"} {
		data := filepath.Join(dir, name)
		s := serve(t, old(t), "--host", loopback.Own(), "--data", data, "--load", dump, "--sync", "always")
		writeFixture(t, s, data, name == "stopped")
		if name == "killed" {
			s.kill(t)
		} else {
			old(t).Must(t, "backup", data, filepath.Join(dir, "directory.backup"))
			old(t).Must(t, append([]string{"backup", filepath.Join(dir, "server.backup")}, flags(s.endpoint)...)...)
			s.end(t)
		}
		// What it serves is what it says after a start.
		copied := filepath.Join(t.TempDir(), name)
		testenv.Must(t, os.CopyFS(copied, os.DirFS(data)))
		s = serve(t, old(t), "--host", loopback.Own(), "--data", copied, "--expiry-grace", "0")
		look(connect(t, s.endpoint)).write(t, name)
		s.end(t)
	}
	testenv.Must(t, pack(dir, filepath.Join("testdata", archiveName)))
}

// writeFixture writes keys of all kinds to a server with data in a directory. Its log has
// several segments in the end, and a checkpoint of its own before them if that is wanted.
func writeFixture(t *testing.T, s *server, data string, checkpoint bool) {
	ctx := testenv.Context(t)
	c := connect(t, s.endpoint)
	set := func(key string, value []byte, opts ...chp.SetOption) {
		t.Helper()
		_, err := c.SetSync(ctx, key, value, opts...)
		testenv.Must(t, err)
	}
	remove := func(key string) {
		t.Helper()
		_, err := c.DeleteSync(ctx, key)
		testenv.Must(t, err)
	}
	// all sets and deletes; before the large values and after them, so that the checkpoint
	// has what one time makes, and the log behind it what the other does.
	all := func(prefix string) {
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		set(prefix+"binary", every)
		set(prefix+"bytes\x01\xfe\n=", []byte{0})
		set(prefix+"größe", []byte("größer"))
		set(prefix+"properties", []byte("1"), chp.WithProperty("origin", "test"), chp.WithProperty("note", "a=b"))
		set(prefix+"session", []byte("1"), chp.WithTTL(87600*time.Hour), chp.WithProperty("owner", "test"))
		set(prefix+"past", []byte("1"), chp.WithTTL(time.Minute))
		set(prefix+"kept", []byte("1"), chp.WithTTL(time.Minute))
		set(prefix+"kept", []byte("2"))
		set(prefix+"shortened", []byte("1"))
		set(prefix+"shortened", []byte("2"), chp.WithTTL(87000*time.Hour))
		set(prefix+"deleted", []byte("1"))
		remove(prefix + "deleted")
		set(prefix+"deleted/again", []byte("1"))
		remove(prefix + "deleted/again")
		set(prefix+"deleted/again", []byte("2"))
		for i := range 20 {
			testenv.Must(t, c.Set(ctx, fmt.Sprint(prefix, "many/", i%5), fmt.Append(nil, i)))
		}
		old(t).Must(t, append([]string{"set", prefix + "command", "1", "--ttl", "80000h"}, flags(s.endpoint)...)...)
		set(prefix+"last", []byte("1"))
	}
	all("/first/")
	remove("/loaded/00")
	set("/loaded/01", []byte("changed"))
	for first := glob(t, data, "checkpoint-*"); checkpoint && slices.Equal(glob(t, data, "checkpoint-*"), first); {
		fill(t, c)
	}
	for len(glob(t, data, "log/*.wal")) < 3 {
		fill(t, c)
	}
	all("/")
}

// fill sets a large value a few times, and then a small one.
func fill(t *testing.T, c *chp.Client) {
	t.Helper()
	for i := range 16 {
		_, err := c.SetSync(testenv.Context(t), "/large", bytes.Repeat([]byte{byte(i)}, 1<<20))
		testenv.Must(t, err)
	}
	_, err := c.SetSync(testenv.Context(t), "/large", bytes.Repeat([]byte("ab"), 1<<10))
	testenv.Must(t, err)
}

// glob returns the files below a directory with names that match.
func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, pattern))
	testenv.Must(t, err)
	return slices.SortedFunc(slices.Values(all), cmp.Compare[string])
}
