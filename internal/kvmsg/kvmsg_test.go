package kvmsg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"clustermap/internal/testenv"
)

// wire builds a message from frames, each in long form if long has its digit.
func wire(long string, frames ...string) []byte {
	var out []byte
	for i, f := range frames {
		flags := byte(FlagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		if strings.Contains(long, fmt.Sprint(i)) || len(f) > 255 {
			out = append(out, flags|flagLong)
			out = binary.BigEndian.AppendUint64(out, uint64(len(f)))
		} else {
			out = append(out, flags, byte(len(f)))
		}
		out = append(out, f...)
	}
	return out
}

const (
	testSeq  = "\x00\x01\x02\x03\x04\x05\x06\x07"
	testUUID = "0123456789abcdef"
)

func TestInspectMakesCanonical(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("v", 300)
	for _, frames := range [][]string{
		{"k", testSeq, "", "", ""},
		{"/a/b", testSeq, testUUID, "", "value"},
		{"/a/b", testSeq, testUUID, "ttl=3\nx=y=z\n", "value"},
		{strings.Repeat("k", 255), testSeq, testUUID, "a=" + big + "\n", big},
		{"HUG", testSeq, testUUID, "", strings.Repeat("v", 255)},
		{"KTHXBAI/", testSeq, testUUID, "", strings.Repeat("v", 256)},
	} {
		want := Record(AppendRecord(nil, []byte(frames[0]), 0x01020304050607, []byte(frames[2]), []byte(frames[3]), []byte(frames[4])))
		// Every combination of frames in long form must come out the same.
		for mask := range 32 {
			long := ""
			for i := range 5 {
				if mask>>i&1 != 0 {
					long += fmt.Sprint(i)
				}
			}
			for _, from := range []Origin{FromClient, FromServer} {
				msg := wire(long, frames...)
				size, tag, k, err := Inspect(msg, from, 0)
				if err != nil || k != KindUpdate {
					t.Fatalf("%q long %q: kind %d, %v", frames, long, k, err)
				}
				r := Record(msg[:size])
				if !bytes.Equal(r, want) {
					t.Fatalf("%q long %q: got %q, want %q", frames, long, r, want)
				}
				if tag&^TagFlags != HashKey([]byte(frames[0])) ||
					tag&TagProperties != 0 != (frames[3] != "") || tag&TagDelete != 0 != (frames[4] == "") {
					t.Fatalf("%q: tag %x", frames, tag)
				}
				if string(r.Key()) != frames[0] || r.Seq() != 0x01020304050607 || string(r.UUID()) != frames[2] ||
					string(r.Props()) != frames[3] || string(r.Value()) != frames[4] || r.Size() != len(r) {
					t.Fatalf("accessors disagree about %q", r)
				}
			}
		}
	}
}

func TestInspectRefuses(t *testing.T) {
	t.Parallel()
	ok := func(i int, body string) []byte {
		frames := []string{"/key", testSeq, testUUID, "", "value"}
		frames[i] = body
		return wire("", frames...)
	}
	tests := []struct {
		name       string
		msg        []byte
		reason     Reason
		fromServer bool // refused from a server too
	}{
		{"no frame", nil, ReasonFrameCount, true},
		{"one frame", wire("", "/key"), ReasonFrameCount, true},
		{"four frames", wire("", "/key", testSeq, testUUID, ""), ReasonFrameCount, true},
		{"six frames", wire("", "/key", testSeq, testUUID, "", "value", "more"), ReasonFrameCount, true},
		{"five of six", wire("", "/key", testSeq, testUUID, "", "value", "more")[:len(ok(4, "value"))], ReasonFrameCount, true},
		{"bytes behind", append(ok(4, "value"), 0), ReasonFrameCount, true},
		{"impossible length", append(ok(4, "")[:len(ok(4, ""))-2], flagLong, 255, 255, 255, 255, 255, 255, 255, 255), ReasonFrameCount, true},
		{"empty key", ok(0, ""), ReasonKey, true},
		{"long key", ok(0, strings.Repeat("k", 256)), ReasonKey, true},
		{"NUL in key", ok(0, "/a\x00b"), ReasonKey, true},
		{"HUGZ", ok(0, "HUGZ"), ReasonReservedKey, false},
		{"HUGZ prefix", ok(0, "HUGZ/a"), ReasonReservedKey, true},
		{"KTHXBAI", ok(0, "KTHXBAI"), ReasonReservedKey, false},
		{"short sequence", ok(1, testSeq[1:]), ReasonSequence, true},
		{"long sequence", ok(1, testSeq+"x"), ReasonSequence, true},
		{"empty sequence", ok(1, ""), ReasonSequence, true},
		{"short UUID", ok(2, testUUID[1:]), ReasonUUID, false},
		{"long UUID", ok(2, testUUID+testUUID), ReasonUUID, false},
		{"no equals sign", ok(3, "ttl\n"), ReasonProperties, false},
		{"no line end", ok(3, "a=b"), ReasonProperties, false},
		{"no name", ok(3, "=b\n"), ReasonProperties, false},
		{"empty line", ok(3, "a=b\n\n"), ReasonProperties, false},
		{"too many properties", ok(3, "a="+strings.Repeat("b", MaxProperties)+"\n"), ReasonProperties, false},
		{"ttl of words", ok(3, "ttl=soon\n"), ReasonTTL, false},
		{"negative ttl", ok(3, "ttl=-1\n"), ReasonTTL, false},
		{"absolute ttl", ok(3, "ttl=1700000000000\n"), ReasonTTL, false},
		{"large value", ok(4, strings.Repeat("v", 1001)), ReasonValueTooLarge, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, _, _, err := Inspect(bytes.Clone(test.msg), FromClient, 1000)
			if !errors.Is(err, &MessageError{Reason: test.reason}) {
				t.Errorf("from a client: %v, want reason %q", err, test.reason)
			}
			_, _, _, err = Inspect(bytes.Clone(test.msg), FromServer, 1000)
			if test.fromServer != (err != nil) {
				t.Errorf("from a server: %v", err)
			}
		})
	}
}

func TestInspectServerKinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		frames []string
		want   Kind
		size   int
	}{
		{[]string{"HUGZ", testSeq, "", "", ""}, KindHUGZ, 22},
		{[]string{"HUGZ", testSeq, testUUID, "", ""}, KindHUGZ, 38},
		{[]string{"HUGZ", "00000000", "odd", "", ""}, KindHUGZ, 22},
		{[]string{"KTHXBAI", testSeq, "", "", "/sub/tree/"}, KindKTHXBAI, 35},
		{[]string{"KTHXBAI", testSeq, "", "", ""}, KindKTHXBAI, 25},
		{[]string{"/key", testSeq, "odd", "not a property", "v"}, KindUpdate, 37},
	} {
		msg := wire("", test.frames...)
		size, _, k, err := Inspect(msg, FromServer, 1)
		if err != nil || k != test.want || size != test.size {
			t.Errorf("%q: kind %d, size %d, %v; want kind %d, size %d", test.frames, k, size, err, test.want, test.size)
		}
	}
}

func TestInspectAllocatesNothing(t *testing.T) {
	good, long, bad := wire("", "/key", testSeq, testUUID, "ttl=3\n", "v"), wire("01234", "/key", testSeq, testUUID, "", "v"), wire("", "/key", "", "", "", "")
	buf := make([]byte, 200)
	if n := testenv.Allocs(0, 100, func() {
		for _, m := range [][]byte{good, long, bad} {
			Inspect(buf[:copy(buf, m)], FromClient, 1000)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(wire("", "/key", testSeq, testUUID, "ttl=3\n", "value"), false)
	f.Add(wire("01234", "/key", testSeq, "", "", ""), true)
	f.Add(wire("", "HUGZ", testSeq, "", "", ""), true)
	f.Add(wire("", "/key", testSeq, testUUID, "", strings.Repeat("v", 300)), false)
	f.Fuzz(func(t *testing.T, in []byte, server bool) {
		from := FromClient
		if server {
			from = FromServer
		}
		msg := bytes.Clone(in)
		size, tag, k, err := Inspect(msg[:len(msg):len(msg)], from, 1<<20)
		if err != nil {
			var refused *MessageError
			if !errors.As(err, &refused) {
				t.Fatalf("%T", err)
			}
			return
		}
		r := Record(msg[:size:size])
		if r.Size() != size || len(r.Key()) == 0 || len(r.Key()) > MaxKey || tag&^TagFlags != HashKey(r.Key()) {
			t.Fatalf("accepted %q as %q", in, r)
		}
		if again := AppendRecord(nil, r.Key(), r.Seq(), r.UUID(), r.Props(), r.Value()); !bytes.Equal(again, r) {
			t.Fatalf("%q is not canonical, %q is", r, again)
		}
		size2, tag2, k2, err := Inspect(r, from, 1<<20)
		if err != nil || size2 != size || tag2 != tag || k2 != k {
			t.Fatalf("a second look differs: %d %x %d %v", size2, tag2, k2, err)
		}
	})
}

func BenchmarkInspect(b *testing.B) {
	msg := AppendRecord(nil, []byte("/k/0000001"), 0, make([]byte, 16), nil, make([]byte, 30))
	b.ReportAllocs()
	for b.Loop() {
		Inspect(msg, FromClient, 1<<20)
	}
}

func TestHasNUL(t *testing.T) {
	t.Parallel()
	for _, fill := range []byte{1, 0x7f, 0x80, 0x81, 0xff} {
		for n := range 40 {
			key := bytes.Repeat([]byte{fill}, n)
			if hasNUL(key) {
				t.Errorf("a NUL is told among %d bytes %#x", n, fill)
			}
			for i := range n {
				key[i] = 0
				if !hasNUL(key) {
					t.Errorf("the NUL at %d of %d bytes %#x goes unnoticed", i, n, fill)
				}
				key[i] = fill
			}
		}
	}
}
