package fuzz

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"clustermap/zmtp"
)

// item is a message or command that a decoder returned.
type item struct {
	kind  zmtp.Kind
	bytes string
}

// decode passes stream to a decoder in pieces and returns the items. next returns
// the size of the piece that starts at an offset, at least 1.
func decode(t *testing.T, l zmtp.Limits, stream []byte, next func(at int) int) (items []item, err error) {
	d := zmtp.NewDecoder(l)
	var b []byte
	for at := 0; at < len(stream); {
		end := min(at+next(at), len(stream))
		// A new address each time, without spare capacity.
		b = append(make([]byte, 0, len(b)+end-at), b...)
		b = append(b, stream[at:end]...)
		at = end
		for {
			kind, n, err := d.Next(b)
			if err != nil {
				if kind != zmtp.KindNeedMore || n != 0 {
					t.Fatalf("error with kind %d and %d bytes", kind, n)
				}
				return items, err
			}
			if kind == zmtp.KindNeedMore {
				if n != 0 || d.Need() <= len(b) {
					t.Fatalf("KindNeedMore with n %d, need %d of %d", n, d.Need(), len(b))
				}
				break
			}
			if n < 2 || n > len(b) {
				t.Fatalf("%d bytes of %d", n, len(b))
			}
			items = append(items, item{kind, string(b[:n])})
			b = b[n:]
		}
	}
	return items, nil
}

// reference is a simple decoder: it reads a whole stream frame by frame and
// copies each message to a buffer.
func reference(l zmtp.Limits, b []byte) (items []item, err error) {
	var message []byte
	frames := 0
	for len(b) > 0 {
		flags := b[0]
		command := flags&zmtp.FlagCommand != 0
		if command && flags&zmtp.FlagMore != 0 {
			return items, zmtp.ErrMalformed
		}
		if !command && frames >= l.MaxFrames {
			return items, zmtp.ErrTooLarge
		}
		var head, size uint64 = 2, 0
		if flags&zmtp.FlagLong != 0 {
			head = 9
		}
		if uint64(len(b)) < head {
			break
		}
		if size = uint64(b[1]); head == 9 {
			size = binary.BigEndian.Uint64(b[1:])
		}
		if size > math.MaxInt64 ||
			command && size > uint64(l.MaxCommand) ||
			!command && uint64(len(message))+head+size > uint64(l.MaxMessage) {
			return items, zmtp.ErrTooLarge
		}
		if uint64(len(b)) < head+size {
			break
		}
		frame := b[:head+size]
		b = b[head+size:]
		if command {
			items = append(items, item{zmtp.KindCommand, string(frame)})
			continue
		}
		message = append(message, frame...)
		frames++
		if flags&zmtp.FlagMore == 0 {
			items = append(items, item{zmtp.KindMessage, string(message)})
			message, frames = nil, 0
		}
	}
	return items, nil
}

// same fails the test unless two decodings have the same result.
func same(t *testing.T, how string, got, want []item, gotErr, wantErr error) {
	t.Helper()
	if (gotErr == nil) != (wantErr == nil) || gotErr != nil && gotErr.Error() != wantErr.Error() {
		t.Fatalf("%s: error %v, unsplit %v", how, gotErr, wantErr)
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d items, unsplit %d", how, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: item %d is %d %x, unsplit %d %x", how, i, got[i].kind, got[i].bytes, want[i].kind, want[i].bytes)
		}
	}
}

// FuzzDecoderSplit asserts that the decoder returns the same items and the same
// error as reference when the stream arrives whole, byte by byte, split at any
// one offset (for short streams), or in pieces of the given sizes. The limits are
// small so that streams reach them.
func FuzzDecoderSplit(f *testing.F) {
	f.Fuzz(func(t *testing.T, stream, pieces []byte) {
		if len(stream) > 2048 {
			return // the splits take quadratic time
		}
		limits := zmtp.Limits{MaxMessage: 600, MaxFrames: 20, MaxCommand: 300}
		want, wantErr := decode(t, limits, stream, func(int) int { return len(stream) })

		plain, plainErr := reference(limits, stream)
		if !errors.Is(wantErr, plainErr) {
			t.Fatalf("error %v, reference %v", wantErr, plainErr)
		}
		if plainErr == nil {
			// The stream is too short to reach the limit on commands
			// inside a message: 256 KiB in moves of 600 bytes.
			same(t, "reference", plain, want, nil, wantErr)
		}
		for _, i := range want {
			check(t, i)
		}

		got, err := decode(t, limits, stream, func(int) int { return 1 })
		same(t, "byte by byte", got, want, err, wantErr)
		if len(stream) <= 100 {
			for split := 1; split < len(stream); split++ {
				got, err := decode(t, limits, stream, func(at int) int {
					if at == 0 {
						return split
					}
					return len(stream)
				})
				same(t, "split", got, want, err, wantErr)
			}
		}
		if len(pieces) > 0 {
			k := 0
			got, err := decode(t, limits, stream, func(int) int {
				k++
				return max(1, int(pieces[k%len(pieces)]))
			})
			same(t, "pieces", got, want, err, wantErr)
		}
	})
}

// check checks the properties of every item.
func check(t *testing.T, i item) {
	t.Helper()
	if i.kind == zmtp.KindCommand {
		if body := zmtp.CommandBody([]byte(i.bytes)); body == nil {
			t.Fatalf("command without a body: %x", i.bytes)
		}
		return
	}
	m := zmtp.WireMessage(i.bytes)
	frames := m.AppendFrames(nil)
	if len(frames) == 0 || len(frames) != m.Len() {
		t.Fatalf("%d frames, Len %d", len(frames), m.Len())
	}
	// The encoder uses the short form where possible, so its result is never
	// longer.
	if again := zmtp.AppendMessage(nil, frames...); len(again) > len(m) {
		t.Fatalf("%d bytes from %d", len(again), len(m))
	}
}

// FuzzEncodeDecode asserts that arbitrary frames survive encoding and decoding,
// also with a command between two of them.
func FuzzEncodeDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, data, sizes []byte, context []byte) {
		var frames [][]byte
		for _, size := range sizes {
			// Up to 765 bytes, so that both forms occur.
			n := min(3*int(size), len(data))
			frames = append(frames, data[:n])
			data = data[n:]
		}
		if len(frames) == 0 {
			frames = [][]byte{data}
		}
		wire := zmtp.AppendMessage(nil, frames...)
		size := 0
		var withPing []byte
		ping := zmtp.AppendPing(nil, uint16(len(data)), context)
		for i, frame := range frames {
			size += zmtp.FrameSize(len(frame))
			withPing = zmtp.AppendFrame(withPing, frame, i < len(frames)-1)
			if i == (len(frames)-1)/2 && len(frames) > 1 {
				withPing = append(withPing, ping...)
			}
		}
		if len(wire) != size {
			t.Fatalf("%d bytes, FrameSize says %d", len(wire), size)
		}

		d := zmtp.NewDecoder(zmtp.Limits{})
		kind, n, err := d.Next(wire)
		if kind != zmtp.KindMessage || n != len(wire) || err != nil {
			t.Fatalf("kind %d, %d of %d bytes, %v", kind, n, len(wire), err)
		}
		for i, got := range zmtp.WireMessage(wire).AppendFrames(nil) {
			if !bytes.Equal(got, frames[i]) {
				t.Fatalf("frame %d: %x, want %x", i, got, frames[i])
			}
		}
		if len(frames) == 1 {
			return
		}
		kind, n, err = d.Next(withPing)
		if kind != zmtp.KindCommand || !bytes.Equal(withPing[:n], ping) || err != nil {
			t.Fatalf("kind %d %x %v, want the PING %x", kind, withPing[:n], err, ping)
		}
		withPing = withPing[n:]
		kind, n, err = d.Next(withPing)
		if kind != zmtp.KindMessage || !bytes.Equal(withPing[:n], wire) || err != nil {
			t.Fatalf("kind %d %v: the message is not the same", kind, err)
		}
	})
}
