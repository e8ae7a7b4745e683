package testenv

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Names makes the names of NewName known to the process, and no others that are not in
// the system's file of hosts. It is for TestMain: a resolver cannot be replaced while it
// is in use.
func Names() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go answerNames(far)
		return near, nil
	}}
}

var (
	names     sync.Map // string to func() []netip.Addr
	nameCount atomic.Int64
)

// NewName returns a host name, of which lookUp returns the addresses each time that it is
// resolved.
func NewName(t testing.TB, lookUp func() []string) string {
	t.Helper()
	name := fmt.Sprintf("name%d.test", nameCount.Add(1))
	names.Store(name, lookUp)
	t.Cleanup(func() { names.Delete(name) })
	return name
}

// answerNames answers questions (RFC 1035, section 4) until the connection ends.
func answerNames(c net.Conn) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		m := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, m); err != nil {
			return
		}
		const header = 12
		var labels []string
		at := header
		for at < len(m) && m[at] != 0 {
			labels = append(labels, string(m[at+1:at+1+int(m[at])]))
			at += 1 + int(m[at])
		}
		end := at + 5 // the end of the name, type and class
		kind := m[at+2]
		answer := append([]byte(nil), m[:end]...)
		copy(answer[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}) // one question
		if lookUp, ok := names.Load(strings.ToLower(strings.Join(labels, "."))); ok {
			for _, text := range lookUp.(func() []string)() {
				a := netip.MustParseAddr(text)
				if (kind == 1) != a.Is4() || kind != 1 && kind != 28 { // A and AAAA
					continue
				}
				answer[7]++
				answer = append(answer, 0xc0, header, 0, kind, 0, 1, 0, 0, 0, 0, 0, byte(a.BitLen()/8))
				answer = append(answer, a.AsSlice()...)
			}
		} else {
			answer[3] |= 3 // no such name
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}
