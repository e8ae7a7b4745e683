package engine

import (
	"bytes"
	"clustermap/zmtp"
	"strings"
	"testing"
)

func TestSubscriptionMessage(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 243, 244, 245, 246, 248, 249, 253, 254, 255, 256, 30_000} {
		topic := strings.Repeat("t", size)
		for first, frame := range map[string][]byte{
			"\x01": zmtp.AppendSubscribe(nil, []byte(topic)),
			"\x00": zmtp.AppendCancel(nil, []byte(topic)),
		} {
			at := subscriptionMessage(frame)
			if at == 0 || !bytes.Equal(frame[at:], wire(first+topic)) {
				t.Errorf("%d bytes, %q: %q", size, first, frame[at:min(len(frame), at+20)])
			}
		}
	}
	for _, frame := range [][]byte{
		zmtp.AppendPing(nil, 0, nil), zmtp.AppendCommand(nil, "SUBSCRIBED", nil), {4, 0}, {4, 1, 9},
	} {
		before := bytes.Clone(frame)
		if at := subscriptionMessage(frame); at != 0 || !bytes.Equal(frame, before) {
			t.Errorf("%q: %d", frame, at)
		}
	}
}
