package access

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/interop"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// A client on libzmq gets what it may, by each mechanism: what it subscribes to beforehand, requests, asks and writes
// beyond that has no effect.
func TestLibzmqClientsAreRestricted(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	hash := quickHash(t, "secret")
	for _, mechanism := range []string{"NULL", "PLAIN", "CURVE"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			rules := "[users.py]\nplain='" + hash + "'\ncurve=['KEY-a']\n[[rules]]\nwho=['py', 'anonymous']\nread=['/a/']\nwrite=['/a/']\n"
			n := serve(t, rules, func(o *chp.ServerOptions) {
				o.HeartbeatInterval = 50 * time.Millisecond
				switch mechanism {
				case "NULL":
					o.Security = sockets.Security{}
				case "PLAIN":
					o.Security = sockets.Security{PlainServer: true}
				}
			})
			ctx := t.Context()
			for _, key := range []string{"/a/1", "/ab/1", "/b/1"} {
				if _, err := n.SetSync(ctx, key, []byte("v")); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"--server", hostOf(t, n)}
			switch mechanism {
			case "PLAIN":
				args = append(args, "--user=py", "--password=secret")
			case "CURVE":
				args = append(args, "--public="+n.keys["a"].Public.String(), "--secret="+n.keys["a"].Secret.Z85(), "--server-key="+n.own.Public.String())
			}
			p := interop.Python(t, "testdata/intruder.py", args...)
			p.Event("written", nil)
			for _, key := range []string{"/b/2", "/ab/2", "x", "/a/end"} {
				if _, err := n.SetSync(ctx, key, []byte("v")); err != nil {
					t.Fatal(err)
				}
			}
			var got struct {
				Snapshot, Heard []string
				Ended           []int
			}
			p.Event("done", &got)
			if !slices.Equal(got.Snapshot, []string{"/a/1"}) || len(got.Ended) != 3 || !slices.Equal(got.Heard, []string{"/a/py", "/a/end"}) {
				t.Errorf("%+v", got)
			}
			for _, key := range []string{"/b/py", "/ab/py", "/a"} {
				if _, ok := n.Get(key); ok {
					t.Errorf("%s is set", key)
				}
			}
			// Six subscriptions, three requests and four updates.
			if got := n.Stats().Refused[chp.ReasonAccess]; got < 13 {
				t.Errorf("%d refusals are counted", got)
			}
		})
	}
}

// A client on libzmq without a right is refused in its handshake.
func TestLibzmqStrangersAreRefused(t *testing.T) {
	t.Parallel()
	interop.Require(t)
	n := serve(t, "[users.a]\n", func(o *chp.ServerOptions) { o.Security = sockets.Security{PlainServer: true} })
	p := interop.Python(t, "testdata/intruder.py", "--server", hostOf(t, n), "--user=stranger", "--password=x")
	p.Event("done", nil)
}

func hostOf(t *testing.T, n *node) string {
	t.Helper()
	u, err := url.Parse(n.Endpoints().Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// Clients with passwords are known by them, and a wrong one is refused.
func TestPasswordsOfClients(t *testing.T) {
	t.Parallel()
	hash := quickHash(t, "secret")
	n := serve(t, "[users.anna]\nplain='"+hash+"'\n[[rules]]\nwho=['anna']\nread=['/a/']\nwrite=['/a/']\n", func(o *chp.ServerOptions) {
		o.Security, o.Stamp = sockets.Security{PlainServer: true}, true
	})
	c := active(t, n.connect(chp.ClientOptions{Security: sockets.Security{PlainUsername: "anna", PlainPassword: "secret"}, Subtrees: []string{"/a/"}}))
	if _, err := c.SetSync(t.Context(), "/a/1", []byte("v")); err != nil {
		t.Fatal(err)
	}
	e, _ := n.Lookup("/a/1")
	if _, by, _ := e.Properties.Stamped(); by != "anna" {
		t.Errorf("by %q", by)
	}
	for _, s := range []sockets.Security{{PlainUsername: "anna", PlainPassword: "wrong"}, {PlainUsername: "anonymous"}, {PlainUsername: "other", PlainPassword: "secret"}} {
		c := n.connect(chp.ClientOptions{Security: s, Subtrees: []string{"/a/"}})
		testenv.Eventually(t, "the refusal", func() bool { return strings.Contains(fmt.Sprint(notActive(c)), "400") })
	}
}
