package chp

import (
	"errors"
	"net"
	"strings"
	"testing"

	"clustermap/internal/loopback"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// withOwnKey gives a server a key as chp serve does: the other one is to have the same.
func withOwnKey(o *ServerOptions) (client sockets.Security) {
	key := zmtp.GenerateKeyPair()
	o.Security = sockets.Security{CurveServer: true, CurveSecretKey: key.Secret, Authenticate: sockets.AllowKeys(key.Public)}
	o.Pair.PeerSecurity = sockets.Security{CurveSecretKey: key.Secret, CurveServerKey: key.Public}
	return o.Pair.PeerSecurity
}

// notPromoted returns the reason why a server is not promoted, once it runs for long enough to
// have heard the other one.
func notPromoted(t *testing.T, server string, security sockets.Security) string {
	t.Helper()
	for {
		err := Promote(testContext(t), server, security)
		refusal := (*PromoteError)(nil)
		if !errors.As(err, &refusal) {
			t.Fatalf("it is promoted although somebody is at the primary's addresses: %v", err)
		}
		if refusal.Reason != "the other server of the pair is heard: it is not gone" {
			return refusal.Reason
		}
	}
}

// Two servers of which one does not accept the other one's key both say so, and why. The
// backup says whom it waits for, and is not promoted: who refuses it is not gone.
func TestPairOfDifferentKeysSaysWhy(t *testing.T) {
	t.Parallel()
	const other, requires, lacks = "as if it had another CURVE key", "requires CURVE", "does not use CURVE"
	for name, c := range map[string]struct {
		curve [2]bool // primary, backup
		says  [2]string
	}{
		"different keys":     {[2]bool{true, true}, [2]string{other, other}},
		"only the primary's": {[2]bool{true, false}, [2]string{lacks, requires}},
		"only the backup's":  {[2]bool{false, true}, [2]string{requires, lacks}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			po, bo := pairOptions(t)
			var logs [2]lockedLog
			var security [2]sockets.Security
			for i, o := range []*ServerOptions{&po, &bo} {
				o.Logger = logs[i].logger()
				if c.curve[i] {
					security[i] = withOwnKey(o)
				}
			}
			servers := [2]pairServer{startAlone(t, po), startAlone(t, bo)}
			for i, at := range []string{po.Pair.PeerState, bo.Pair.PeerState} {
				eventually(t, "each server says why it does not hear the other one", func() bool {
					for line := range strings.Lines(logs[i].String()) {
						if strings.Contains(line, "level=WARN") && strings.Contains(line, "cannot hear the other server, which is there: the server at "+at) && strings.Contains(line, c.says[i]) {
							return true
						}
					}
					return false
				})
				if st := servers[i].Status(); !strings.Contains(st.PeerError, c.says[i]) {
					t.Errorf("server %d: its status says %q", i, st.PeerError)
				}
			}
			eventually(t, "the backup says for whom it waits", func() bool {
				text := logs[1].String()
				_, text, found := strings.Cut(text, "waits for the primary")
				return found && strings.Contains(text, "it is not gone: the server at ") && strings.Contains(text, c.says[1])
			})
			if got := notPromoted(t, po.Pair.Peer, security[1]); !strings.Contains(got, "is not gone") || !strings.Contains(got, c.says[1]) {
				t.Errorf("it is not promoted because %q", got)
			}
			if servers[1].active() {
				t.Error("the backup is active")
			}
		})
	}
}

// A backup that has a wrong address of the primary's state is not promoted while somebody
// answers at any of the addresses of the primary.
func TestPairSomebodyWhoAnswersIsNotGone(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", net.JoinHostPort(loopback.Own(), "0"))
	must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for name, c := range map[string]struct {
		serves bool // the primary
		state  string
		says   string
	}{
		"nobody at the state's address":   {true, "tcp://" + net.JoinHostPort(loopback.Own(), "1"), "answers, but nothing is heard at "},
		"somebody silent at that address": {false, "tcp://" + silent.Addr().String(), "accepts a connection, and does not complete the handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			po, bo := pairOptions(t)
			var told lockedLog
			bo.Logger, bo.Pair.PeerState = told.logger(), c.state
			if c.serves {
				startAlone(t, po)
			}
			backup := startAlone(t, bo)
			if got := notPromoted(t, po.Pair.Peer, sockets.Security{}); !strings.Contains(got, "is not gone") || !strings.Contains(got, c.says) {
				t.Errorf("it is not promoted because %q", got)
			}
			eventually(t, "it says for whom it waits", func() bool {
				_, text, found := strings.Cut(told.String(), "waits for the primary")
				return found && strings.Contains(text, c.says)
			})
			if st := backup.Status(); st.State != ServerWaiting || !strings.Contains(st.PeerError, c.says) {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestPairFaultIsOverWhenHeard: why a server did not hear the other one is no longer said once it
// has heard it: when that one is gone later, nobody answers at its addresses.
func TestPairFaultIsOverWhenHeard(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	po, bo := pairOptions(t)
	something, err := sockets.NewRouter(sockets.Options{})
	must(t, err)
	defer something.Close()
	must(t, something.Bind(ctx, bo.Pair.Peer))
	backup := startAlone(t, bo)
	eventually(t, "it says what answers instead of the primary", func() bool { return backup.Status().PeerError != "" })
	must(t, something.Close())

	primary := startPairServer(t, po)
	c := pairClient(t, po, bo)
	_, err = c.SetSync(ctx, "/a", []byte("1"))
	must(t, err)
	eventually(t, "the backup follows", primary.inSync)
	primary.crash()
	_, err = c.SetSync(ctx, "/a", []byte("2"))
	must(t, err)
	if st := backup.Status(); st.State != ServerActive || st.PeerError != "" {
		t.Errorf("the primary is gone: %+v", st)
	}
}
