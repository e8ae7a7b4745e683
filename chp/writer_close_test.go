package chp

import "testing"

// A session that becomes ACTIVE while Close waits for the writer gets no updates:
// Close bounds its wait only for the session that it found.
func TestWriterTakesNoSessionAfterClose(t *testing.T) {
	t.Parallel()
	c, err := newClient(ClientOptions{Servers: []string{"tcp://127.0.0.1:1"}, Logger: quiet()})
	must(t, err)
	defer c.cancel()
	w := &c.writer
	w.add(1, 1)
	w.close()
	w.begin(&session{uplink: &uplink{}})
	defer w.clear()
	if s := w.next(); s != nil {
		t.Error("a closed writer would send to a new session")
	}
}
