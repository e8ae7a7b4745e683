package queue

import "testing"

// TestHWMPlus: two queues without limits are one without limits, on 32 bits, too.
func TestHWMPlus(t *testing.T) {
	t.Parallel()
	none := HWM{Messages: Unbounded, Bytes: Unbounded}
	if got := none.plus(none); got != none {
		t.Errorf("%+v", got)
	}
	if got := none.plus(HWM{Messages: 1, Bytes: 1}); got != none {
		t.Errorf("%+v", got)
	}
}
