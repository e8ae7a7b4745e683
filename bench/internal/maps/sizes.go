package maps

import (
	"fmt"
	"strconv"
	"strings"
)

// Sizes are numbers of keys, separated by commas as a flag.
type Sizes []int

func (s *Sizes) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*s), " ", ","), "[]")
}

// Set replaces all of them.
func (s *Sizes) Set(text string) error {
	*s = nil
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number of keys", part)
		}
		*s = append(*s, n)
	}
	return nil
}
