package connection

import (
	"errors"
	"io"
	"runtime"
	"testing"

	"clustermap/internal/testenv"
)

// TestHalfClose: it waits until the peer closes the connection, but not forever, and
// knows how many bytes the peer's system has not received.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	ours, theirs := connected(t)
	const size = 32 << 20 // more than the kernel's buffers hold
	go func() { _, _ = ours.Stream.Send([][]byte{make([]byte, size)}) }()
	if runtime.GOOS == "linux" && !testenv.Portable {
		eventually(t, "something is not confirmed", func() bool { return ours.Stream.Unconfirmed() > 0 })
	}
	_, err := io.CopyN(io.Discard, theirs, size)
	must(t, err)
	eventually(t, "all is confirmed", func() bool { return ours.Stream.Unconfirmed() == 0 })
	within(t, "HalfClose of a peer that does not end", func() { ours.HalfClose(ctx) })
	if n, err := theirs.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
	ours.Finish()
	within(t, "HalfClose of a closed connection", func() { ours.HalfClose(ctx) })
	if ours.Stream.Unconfirmed() != 0 {
		t.Error("a closed connection has something unconfirmed")
	}
}
