//go:build unix

package upgrade

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermap/internal/commandtest"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
)

// TestWireOfEarlierVersion: a server answers the same bytes as the earlier version, whose
// answers testdata/wire.txt has. With -update the earlier version writes them there.
func TestWireOfEarlierVersion(t *testing.T) {
	t.Parallel()
	script := filepath.Join("testdata", "wire.txt")
	if !testenv.Update() {
		t.Run("today", func(t *testing.T) {
			t.Parallel()
			newWire(t, today(t)).play(script)
		})
	}
	t.Run("earlier", func(t *testing.T) {
		t.Parallel()
		newWire(t, old(t)).play(script)
	})
}

// wire is connections to a server, by name, on which bytes are sent and received as they
// are.
type wire struct {
	t           *testing.T
	host        string
	connections map[string]*rawConnection
	base        uint64 // of sequences: that of an empty map; 0 until it is known
}

type rawConnection struct {
	net.Conn
	in *bufio.Reader
}

func newWire(t *testing.T, program *commandtest.Program) *wire {
	t.Helper()
	w := &wire{t: t, host: loopback.Own(), connections: make(map[string]*rawConnection)}
	serve(t, program, "--host", w.host, "--heartbeat", "100ms")
	t.Cleanup(func() {
		for _, c := range w.connections {
			c.Close()
		}
	})
	return w
}

func (w *wire) play(script string) {
	w.t.Helper()
	testenv.Script(w.t, script, w.run)
}

// run runs a command of the script:
//
//	connect NAME PORT TYPE NAME=VALUE...   to PORT behind the first one, with metadata
//	send NAME FRAME...                     a message; a frame is as in a string of Go
//	receive NAME                           the next message that is no heartbeat
//	heartbeat NAME                         the next one that is
func (w *wire) run(command string, args []string) string {
	w.t.Helper()
	c := w.connections[args[0]]
	switch command {
	case "connect":
		return w.connect(args[0], args[1], args[2], args[3:])
	case "send":
		var frames [][]byte
		for _, a := range args[1:] {
			text, err := strconv.Unquote(`"` + strings.Trim(a, `"`) + `"`) // an empty one is ""
			testenv.Must(w.t, err)
			frames = append(frames, []byte(text))
		}
		c.send(w.t, frames...)
		return ""
	case "receive", "heartbeat":
		for {
			text, beats := w.receive(c)
			if beats == (command == "heartbeat") {
				return text
			}
		}
	}
	w.t.Fatalf("unknown command %q", command)
	return ""
}

// connect greets a server as libzmq 4.1 does.
func (w *wire) connect(name, port, kind string, metadata []string) string {
	n, err := strconv.Atoi(port)
	testenv.Must(w.t, err)
	conn, err := net.Dial("tcp", fmt.Sprint(w.host, ":", 5556+n))
	testenv.Must(w.t, err)
	testenv.Must(w.t, conn.SetDeadline(time.Now().Add(testenv.Hang)))
	c := &rawConnection{conn, bufio.NewReader(conn)}
	w.connections[name] = c
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	_, err = c.Write(greeting)
	testenv.Must(w.t, err)
	got := make([]byte, 64)
	_, err = io.ReadFull(c.in, got)
	testenv.Must(w.t, err)

	ready := []byte("\x05READY")
	for _, m := range append([]string{"Socket-Type=" + kind}, metadata...) {
		name, value, _ := strings.Cut(m, "=")
		text, err := strconv.Unquote(`"` + value + `"`)
		testenv.Must(w.t, err)
		ready = append(append(ready, byte(len(name))), name...)
		ready = append(binary.BigEndian.AppendUint32(ready, uint32(len(text))), text...)
	}
	_, err = c.Write(append([]byte{4, byte(len(ready))}, ready...))
	testenv.Must(w.t, err)
	text, _ := w.receive(c)
	text = announcedSince.Replace(text) // peers ignore what they do not know
	return fmt.Sprintf("%q\n%s", got, text)
}

// announcedSince is what a server of today announces in READY, and the earlier version does not.
var announcedSince = strings.NewReplacer(`\x12X-CHP-Transactions\x00\x00\x00\x011`, "", `\fX-CHP-Resume\x00\x00\x00\x011`, "", `\fX-CHP-Leases\x00\x00\x00\x011`, "")

func (c *rawConnection) send(t testing.TB, frames ...[]byte) {
	t.Helper()
	var b []byte
	for i, f := range frames {
		more := byte(0)
		if i < len(frames)-1 {
			more = 1
		}
		b = append(append(b, more, byte(len(f))), f...)
	}
	_, err := c.Write(b)
	testenv.Must(t, err)
}

var (
	ttlLine = regexp.MustCompile(`ttl=([0-9.]+)\\n`)
	// What this version announces in addition.
	instance = regexp.MustCompile(`\\x0eX-CHP-Instance\\x00\\x00\\x00 [0-9a-f]{32}`)
	mapID    = regexp.MustCompile(`map-id=[0-9a-f]{32}\\n`)
)

// receive returns the next message, a line for each frame: its flags, and its bytes. What
// differs between runs is left out: where sequences begin, the identities of server and map,
// and fractions of a second. It reports whether it was a heartbeat, of either kind.
func (w *wire) receive(c *rawConnection) (text string, beats bool) {
	w.t.Helper()
	var out strings.Builder
	for i := 0; ; i++ {
		flags, err := c.in.ReadByte()
		testenv.Must(w.t, err)
		head := make([]byte, 1+7*(flags>>1&1))
		_, err = io.ReadFull(c.in, head)
		testenv.Must(w.t, err)
		size := uint64(0)
		for _, b := range head {
			size = size<<8 | uint64(b)
		}
		body := make([]byte, size)
		_, err = io.ReadFull(c.in, body)
		testenv.Must(w.t, err)

		beats = beats || i == 0 && (string(body) == "HUGZ" || strings.HasPrefix(string(body), "\x04PING"))
		line := fmt.Sprintf("%02x %q", flags, body)
		if flags&4 != 0 {
			line = instance.ReplaceAllString(line, "")
		} else if i == 1 && strings.HasPrefix(out.String(), `01 "APPLIED"`) {
			line = fmt.Sprintf("%02x %d bytes", flags, len(body))
		} else if i == 1 && len(body) == 8 {
			if seq := binary.BigEndian.Uint64(body); seq != 0 {
				if w.base == 0 {
					w.base = seq
				}
				line = fmt.Sprintf("%02x first+%d", flags, seq-w.base)
			}
		}
		line = mapID.ReplaceAllString(line, "") // since then
		line = ttlLine.ReplaceAllStringFunc(line, func(s string) string {
			seconds, err := strconv.ParseFloat(s[4:len(s)-2], 64)
			testenv.Must(w.t, err)
			return fmt.Sprintf(`ttl=%.0f\n`, math.Ceil(seconds/1000)*1000)
		})
		fmt.Fprintln(&out, line)
		if flags&1 == 0 {
			return out.String(), beats
		}
	}
}
