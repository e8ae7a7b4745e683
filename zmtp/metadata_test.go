package zmtp

import (
	"bytes"
	"strings"
	"testing"

	"clustermap/internal/testenv"
)

func TestMetadata(t *testing.T) {
	t.Parallel()
	b := AppendProperty(nil, "Socket-Type", []byte("DEALER"))
	b = AppendProperty(b, "Identity", nil)
	b = AppendProperty(b, "X-a.b_c+D", []byte{0, 1})
	b = AppendProperty(b, "x-A.B_c+d", []byte("second"))
	want := "\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00" +
		"\x09X-a.b_c+D\x00\x00\x00\x02\x00\x01\x09x-A.B_c+d\x00\x00\x00\x06second"
	if string(b) != want {
		t.Fatalf("%x, want %x", b, want)
	}
	m, err := ParseMetadata(b)
	if err != nil || len(m) != 4 {
		t.Fatal(m, err)
	}
	for name, want := range map[string]string{
		"Socket-Type": "DEALER", "SOCKET-TYPE": "DEALER", "identity": "", "X-A.B_C+D": "\x00\x01",
	} {
		if got, ok := m.Get(name); !ok || string(got) != want {
			t.Errorf("%s: %q %v", name, got, ok)
		}
	}
	if _, ok := m.Get("Resource"); ok {
		t.Error("a property that is not there was found")
	}
	if m, err := ParseMetadata(nil); m != nil || err != nil {
		t.Error(m, err)
	}
}

func TestParseMetadataMalformed(t *testing.T) {
	t.Parallel()
	whole := AppendProperty(nil, "X-name", []byte("value"))
	for i := 1; i < len(whole); i++ {
		_, err := ParseMetadata(whole[:i])
		wantError(t, err, ErrMalformed)
	}
	for _, in := range []string{
		string(whole) + "\x00",                   // trailing byte
		"\x00\x00\x00\x00\x00",                   // empty name
		"\x03a b\x00\x00\x00\x00",                // character
		"\x02\xc3\xa4\x00\x00\x00\x00",           // letters are ASCII
		"\x01a\x80\x00\x00\x00",                  // value of 2^31 bytes
		"\x01a\xff\xff\xff\xff",                  //
		"\x01a\x7f\xff\xff\xff",                  // allowed, but not there
		"\xffa\x00\x00\x00\x00",                  // name not there
		"\x01a\x00\x00\x00\x01",                  // value not there
		"\x01a\x00\x00\x00\x00\x02b\x00\x00\x00", // second cut short
	} {
		_, err := ParseMetadata([]byte(in))
		wantError(t, err, ErrMalformed)
	}
}

func TestMetadataNameLength(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 255)
	m, err := ParseMetadata(AppendProperty(nil, name, nil))
	if err != nil || m[0].Name != name {
		t.Error(err)
	}
	if validName(name + "n") {
		t.Error("a name of 256 bytes is valid")
	}
}

// TestParseMetadataMemory: the memory allocated is proportional to the number of
// bytes, even for the smallest properties.
func TestParseMetadataMemory(t *testing.T) {
	b := bytes.Repeat(AppendProperty(nil, "n", nil), 10000)
	n := testenv.Allocs(0, 10, func() {
		if m, err := ParseMetadata(b); err != nil || len(m) != 10000 {
			t.Fatal(len(m), err)
		}
	})
	if n > 1 {
		t.Errorf("%v allocations, want the one of the properties", n)
	}
}
