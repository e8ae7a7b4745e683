package chp

import (
	"testing"
	"time"
)

// The last entry of a key wins in every respect: a time to live that an earlier one
// had is forgotten.
func TestPreloadForgetsEarlierTTL(t *testing.T) {
	t.Parallel()
	s, err := NewServer(ServerOptions{Logger: quiet(), Preload: func(yield func(Entry, error) bool) {
		_ = yield(Entry{Key: []byte("k"), Value: []byte("1"), TTL: time.Hour}, nil) &&
			yield(Entry{Key: []byte("k"), Value: []byte("2")}, nil)
	}})
	must(t, err)
	defer s.Close()
	if e, p := s.Lookup("k"); p != PresenceFound || string(e.Value) != "2" || e.TTL != 0 {
		t.Errorf("%+v, %v", e, p)
	}
}
