package buf

import "testing"

// Only the messages count, not what is before them.
func TestExtentOfMessages(t *testing.T) {
	t.Parallel()
	if n := Extent(nil); n != 0 {
		t.Error(n)
	}
	if n := Extent([]Span{{Start: 1000, End: 1100}, {Start: 1100, End: 1200}}); n != 200 {
		t.Error(n)
	}
}
