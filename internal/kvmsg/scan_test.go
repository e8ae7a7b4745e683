package kvmsg

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"clustermap/internal/buf"
	"clustermap/internal/testenv"
	"clustermap/zmtp"
)

// compareScan checks that Scan of b agrees with a decoder and Inspect about the message
// at its start, if that is a valid update in canonical form, and 0 otherwise.
func compareScan(t *testing.T, b []byte, from Origin, maxValue int) (size int) {
	t.Helper()
	was := bytes.Clone(b)
	size, tag := Scan(b[:len(b):len(b)], from, maxValue)
	if !bytes.Equal(b, was) {
		t.Fatalf("%q was changed to %q", was, b)
	}
	var d zmtp.Decoder
	kind, n, err := d.Next(bytes.Clone(b))
	found := err == nil && kind == zmtp.KindMessage && IsCanonical(b[:n])
	want, wantTag := 0, uint64(0)
	if found {
		if s, g, k, err := Inspect(bytes.Clone(b[:n]), from, maxValue); err == nil && k == KindUpdate {
			want, wantTag = s, g
		}
	}
	if size != want || tag != wantTag {
		t.Fatalf("Scan(%.300q) = %d, %x, want %d, %x", b, size, tag, want, wantTag)
	}
	return size
}

func TestScan(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("v", 300)
	valid := 0
	for _, key := range []string{"k", "/a/b", strings.Repeat("k", 255), "nul\x00", "HUGZ", "HUGZ/", "KTHXBAI", "KTHXBAI/"} {
		for _, id := range []string{"", testUUID, "short"} {
			for _, props := range []string{"", "ttl=3\n", "ttl", "a=" + big + "\n"} {
				for _, value := range []string{"", "v", strings.Repeat("v", 255), big} {
					for _, long := range []string{"", "0", "1", "2", "3", "4"} {
						m := wire(long, key, testSeq, id, props, value)
						for _, from := range []Origin{FromClient, FromServer} {
							if compareScan(t, m, from, 256) > 0 {
								valid++
							}
							compareScan(t, append(bytes.Clone(m), m...), from, 0)
						}
					}
				}
			}
		}
	}
	if valid < 100 {
		t.Errorf("only %d were valid", valid)
	}
}

// TestScanParts: Scan finds nothing in a part of a message, and reads nothing behind it.
func TestScanParts(t *testing.T) {
	t.Parallel()
	for _, m := range [][]byte{
		wire("", "/key", testSeq, testUUID, "", "value"),
		wire("", "/key", testSeq, "", "", ""),
		wire("", "/key", testSeq, testUUID, "ttl=3\n", strings.Repeat("v", 300)),
	} {
		for n := range m {
			if size, _ := Scan(m[:n:n], FromClient, 0); size != 0 {
				t.Fatalf("%d bytes found in %d of %d", size, n, len(m))
			}
		}
		for i := range m {
			for _, x := range []byte{0x00, 0x01, 0x02, 0x04, 0xff} {
				bad := bytes.Clone(m)
				bad[i] = x
				compareScan(t, bad, FromClient, 0)
				compareScan(t, bad, FromServer, 0)
			}
		}
	}
}

func TestAllocScan(t *testing.T) {
	m := wire("", "/key", testSeq, testUUID, "ttl=3\n", "value")
	if n := testenv.Allocs(0, 100, func() { Scan(m, FromClient, 1000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzScan(f *testing.F) {
	f.Add(wire("", "/key", testSeq, testUUID, "ttl=3\n", "value"), false)
	f.Add(wire("", "/key", testSeq, "", "", ""), true)
	f.Add(wire("", "HUGZ", testSeq, "", "", ""), true)
	f.Add(wire("", "/key", testSeq, testUUID, "", strings.Repeat("v", 300)), false)
	f.Fuzz(func(t *testing.T, in []byte, server bool) {
		from := FromClient
		if server {
			from = FromServer
		}
		compareScan(t, in, from, 1<<10)
	})
}

// BenchmarkScan compares one pass with Scan to a pass of a decoder and one of Inspect,
// over the bytes of one read.
func BenchmarkScan(b *testing.B) {
	var wire []byte
	messages := 0
	for ; len(wire) < 200<<10; messages++ {
		wire = AppendRecord(wire, fmt.Appendf(nil, "/bench/%05d", messages), 0, make([]byte, UUIDSize), nil, make([]byte, 32))
	}
	spans := make([]buf.Span, 0, messages)
	b.Run("passes=1", func(b *testing.B) {
		b.SetBytes(int64(len(wire)))
		for b.Loop() {
			spans = spans[:0]
			for at := 0; at < len(wire); {
				size, tag := Scan(wire[at:], FromClient, 1<<20)
				spans = append(spans, buf.Span{Start: uint32(at), End: uint32(at + size), Tag: tag})
				at += size
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(messages), "ns/msg")
	})
	b.Run("passes=2", func(b *testing.B) {
		b.SetBytes(int64(len(wire)))
		var d zmtp.Decoder
		for b.Loop() {
			spans = spans[:0]
			for at := 0; at < len(wire); {
				_, size, _ := d.Next(wire[at:])
				spans = append(spans, buf.Span{Start: uint32(at), End: uint32(at + size)})
				at += size
			}
			for i, s := range spans {
				_, spans[i].Tag, _, _ = Inspect(wire[s.Start:s.End], FromClient, 1<<20)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(messages), "ns/msg")
	})
}
