package zmtp

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
)

// TestSizesBeyondAnInt: where an int has 32 bits, every framing refuses a frame
// whose size needs more than 31 bits, and never takes it for a smaller one.
func TestSizesBeyondAnInt(t *testing.T) {
	t.Parallel()
	none := Limits{MaxMessage: -1, MaxFrames: -1, MaxCommand: -1}
	long := func(size uint64, lead ...byte) []byte { return binary.BigEndian.AppendUint64(lead, size) }
	_, curve := codecPair(none)
	for _, size := range []uint64{1<<31 - 1, 1 << 31, 1<<31 + 5, 1<<32 - 1, 1 << 32, 1<<32 + 5, 1 << 33, 1<<62 + 5} {
		fits := size < math.MaxInt-100
		for _, c := range []struct {
			name string
			look func() (need int, err error)
		}{
			{"message", func() (int, error) {
				d := NewDecoder(none)
				kind, _, err := d.Next(long(size, FlagLong))
				if kind != KindNeedMore {
					err = fmt.Errorf("found kind %d", kind)
				}
				return d.Need(), err
			}},
			{"command", func() (int, error) {
				d := NewDecoder(none)
				kind, _, err := d.Next(long(size, FlagLong|FlagCommand))
				if kind != KindNeedMore {
					err = fmt.Errorf("found kind %d", kind)
				}
				return d.Need(), err
			}},
			{"ZMTP 1.0", func() (int, error) {
				_, _, need, err := newOldCodec(zmtp10, none.bounds().message-longHeader1).Decode(nil, append(long(size, longMark1), 0), 1)
				return need, err
			}},
			{"ZMTP 2.0", func() (int, error) {
				_, _, need, err := newOldCodec(zmtp20, none.bounds().message-longHeader1).Decode(nil, long(size, FlagLong), 1)
				return need, err
			}},
			{"CURVE", func() (int, error) {
				_, _, need, err := curve.Decode(nil, long(size, FlagLong), 1)
				return need, err
			}},
		} {
			need, err := c.look()
			if fits {
				if err != nil || uint64(need) < size {
					t.Errorf("%s of %d bytes: needs %d, %v", c.name, size, need, err)
				}
				continue
			}
			wantError(t, err, ErrTooLarge)
			if need < 0 {
				t.Errorf("%s of %d bytes: needs %d", c.name, size, need)
			}
		}
	}
}
