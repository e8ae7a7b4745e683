package segment

import (
	"io"
	"testing"
)

// shrinking is a file that another process cuts back once its end has been seen.
type shrinking struct {
	content string
	left    int
}

func (f *shrinking) ReadAt(b []byte, offset int64) (int, error) {
	n := copy(b, f.content[min(int(offset), len(f.content)):])
	if n < len(b) {
		f.content = f.content[:f.left]
		return n, io.EOF
	}
	return n, nil
}

// TestFileThatBecomesShorterCanBeRead: the disk is not to blame, and what is left is read.
func TestFileThatBecomesShorterCanBeRead(t *testing.T) {
	t.Parallel()
	b, err := contentFrom(&shrinking{content: "0123456789", left: 6}, 2)
	if err != nil || string(b) != "2345" {
		t.Errorf("%q, %v", b, err)
	}
}
