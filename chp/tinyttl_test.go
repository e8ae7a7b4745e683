package chp

import "testing"

// A key with a time to live that is above 0 ends, however short it is.
func TestTinyTTLEnds(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{})
	c := newPlainClient(t, s)
	c.set("k", "ttl=0.0000000001\n", "v")
	if m := c.next(); m.value != "v" {
		t.Errorf("first comes %+v", m)
	}
	if m := c.next(); m.key != "k" || m.value != "" {
		t.Errorf("then comes %+v, want the end of k", m)
	}
}
