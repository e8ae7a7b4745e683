package sockets

import (
	"encoding/json"
	"testing"
)

// An event in JSON, as in a log, says what failed.
func TestEventInJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Event{Kind: EventHandshakeFailed, Endpoint: "tcp://a:1", Remote: "b:2", Err: &PeerError{Remote: "b:2", Err: ErrDenied}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Kind, Endpoint, Remote, Err string }
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if want := (&PeerError{Remote: "b:2", Err: ErrDenied}).Error(); got.Err != want || got.Kind != "handshake failed" || got.Endpoint != "tcp://a:1" || got.Remote != "b:2" {
		t.Errorf("%s", text)
	}
	if text, err := json.Marshal(Event{Kind: EventHandshakeSucceeded}); err != nil || string(text) != `{"Kind":"handshake succeeded","Endpoint":"","Remote":"","Peer":null,"Retry":0}` {
		t.Errorf("%s, %v", text, err)
	}
}
