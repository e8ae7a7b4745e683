package kvmsg

import "testing"

// A time to live that is above 0 never means for ever, however short it is.
func TestTinyTTL(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0.0000000001", "0.0000000000000000001", "0.000000001", ".0000000009"} {
		if ttl, ok := ParseTTL([]byte(text)); !ok || ttl != 1 {
			t.Errorf("ttl %s is %v, %v; want 1ns", text, ttl, ok)
		}
	}
	if ttl, ok := ParseTTL([]byte("1.0000000000")); !ok || ttl != 1e9 {
		t.Errorf("ttl 1.0000000000 is %v, %v", ttl, ok)
	}
}
