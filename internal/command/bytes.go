package command

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size on the command line: a number of bytes, or a number with KiB, MiB
// or GiB.
type Bytes int

var byteUnits = []struct {
	suffix string
	shift  uint
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}

// String formats the size with the largest unit that divides it.
func (b *Bytes) String() string {
	for _, u := range byteUnits {
		if n := int(*b); n != 0 && n%(1<<u.shift) == 0 {
			return strconv.Itoa(n>>u.shift) + u.suffix
		}
	}
	return strconv.Itoa(int(*b))
}

// Set parses a size.
func (b *Bytes) Set(s string) error {
	digits, shift := s, uint(0)
	for _, u := range byteUnits {
		if d, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, shift = strings.TrimSpace(d), u.shift
			break
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > math.MaxInt>>shift {
		return fmt.Errorf("%q is not a size; write bytes, or a number with KiB, MiB or GiB", s)
	}
	*b = Bytes(n << shift)
	return nil
}

// Type returns the name of the type in help texts.
func (b *Bytes) Type() string { return "size" }
