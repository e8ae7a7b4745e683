package wire

import (
	"testing"

	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

func TestRefusalMessage(t *testing.T) {
	t.Parallel()
	id := []byte("0123456789abcdef")
	m := zmtp.WireMessage(AppendRefusal(nil, id, kvmsg.ReasonTTL))
	if got, reason, ok := ParseRefusal(m); !ok || string(got) != string(id) || reason != kvmsg.ReasonTTL {
		t.Errorf("%q, %v, %v", got, reason, ok)
	}
	for _, frames := range [][]string{{"REFUSED"}, {"REFUSED", string(id)}, {"REFUSED", "short", "\x01"}, {"REFUSED", string(id), ""}, {"refused", string(id), "\x01"}} {
		var bytes [][]byte
		for _, f := range frames {
			bytes = append(bytes, []byte(f))
		}
		if _, _, ok := ParseRefusal(zmtp.AppendMessage(nil, bytes...)); ok {
			t.Errorf("%q was taken for a refusal", frames)
		}
	}
}
