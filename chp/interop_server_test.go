package chp

import (
	"fmt"
	"testing"
	"time"

	"clustermap/internal/interop"
	"clustermap/internal/kvmsg"
)

// libzmqClient starts clone_client.py, a CHP client on libzmq, against a server
// of ours, and waits until it is ACTIVE.
func libzmqClient(t *testing.T, s *Server, args ...string) *interop.Process {
	t.Helper()
	at := fmt.Sprintf("127.0.0.1:%d", portOf(s.Endpoints().Snapshot))
	p := interop.Python(t, "clone_client.py", append([]string{"--server", at}, args...)...)
	p.Call(interop.Op{"op": "wait_active"}, nil)
	return p
}

// wantLibzmq compares a client on libzmq with the server, key by key.
func wantLibzmq(t *testing.T, s *Server, p *interop.Process) {
	t.Helper()
	cut := s.live.Cut()
	defer cut.Release()
	p.Call(interop.Op{"op": "wait_sequence", "sequence": cut.Sequence}, nil)
	want := interop.Digest(func(yield func([]byte, []byte) bool) {
		cut.Records(func(r kvmsg.Record) bool { return yield(r.Key(), r.Value()) })
	})
	var got interop.Map
	p.Call(interop.Op{"op": "digest"}, &got)
	if got != want {
		t.Errorf("the client on libzmq has %v, the server %v", got, want)
	}
}

// Clients on libzmq, in the style of the guide's C and Python programs, share a
// map with our own client through our server: snapshots, subtrees, updates,
// deletions and TTL, in both directions.
func TestInteropServerWithLibzmqClients(t *testing.T) {
	t.Parallel()
	for _, style := range cloneStyles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := startServer(t, ServerOptions{HeartbeatInterval: 50 * time.Millisecond})
			ours := startClient(t, s, ClientOptions{})
			for i := range 500 {
				must(t, ours.Set(ctx, fmt.Sprintf("/a/%d", i), fmt.Appendf(nil, "value %d", i)))
			}
			_, err := ours.SetSync(ctx, "/b/binary", []byte{0, 255, 1, 254})
			must(t, err)

			all := libzmqClient(t, s, "--style", style)
			part := libzmqClient(t, s, "--style", style, "--subtree", "/a/")
			all.Call(cloneSet("/a/theirs", "x"), nil)
			all.Call(cloneSet("/a/7", ""), nil)
			part.Call(cloneSet("/a/8", "changed"), nil)
			eventually(t, "our client has their updates", func() bool {
				_, gone := ours.Get("/a/7")
				changed, _ := ours.Get("/a/8")
				theirs, _ := ours.Get("/a/theirs")
				return !gone && string(changed) == "changed" && string(theirs) == "x"
			})
			_, err = ours.SetSync(ctx, "/a/brief", []byte("v"), WithTTL(100*time.Millisecond))
			must(t, err)
			eventually(t, "the TTL ends", func() bool { _, ok := ours.Get("/a/brief"); return !ok })
			_, err = ours.SetSync(ctx, "/a/last", []byte("end"))
			must(t, err)
			wantLibzmq(t, s, all)
			part.Call(interop.Op{"op": "wait", "key": []byte("/a/last"), "value": []byte("end")}, nil)
			var d interop.Map
			part.Call(interop.Op{"op": "digest"}, &d)
			want := interop.Digest(func(yield func([]byte, []byte) bool) {
				ours.Range(func(key, value []byte) bool {
					return string(key[:3]) != "/a/" || yield(key, value)
				})
			})
			if d != want {
				t.Errorf("the client of /a/ has %v, the server %v", d, want)
			}
		})
	}
}
