package interop

import (
	"errors"
	"slices"
	"testing"

	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// verdict is a monitor's report of a failed handshake: ours by the sort of failure and
// libzmq's code, libzmq's by the name of the event and its value.
type verdict struct {
	event string
	value uint32
}

// Verdicts. For closed and ended the value means nothing: it is the system's
// number of an error, or a descriptor. To the other's type libzmq (4.3) just ends
// the connection.
var (
	auth400   = verdict{"HANDSHAKE_FAILED_AUTH", 400}
	mismatch  = verdict{"HANDSHAKE_FAILED_PROTOCOL", zmtp.CodeMechanismMismatch}
	notOurs   = verdict{"HANDSHAKE_FAILED_PROTOCOL", zmtp.CodeCryptographic}
	wrongType = verdict{"HANDSHAKE_FAILED_PROTOCOL", zmtp.CodeInvalidMetadata}
	closed    = verdict{"HANDSHAKE_FAILED_NO_DETAIL", 0}
	ended     = verdict{"DISCONNECTED", 0}
)

// refusal is a reason to refuse, and the expected reports.
type refusal struct {
	name       string
	pairs      []pair
	securities []security
	expect     expectation
	// hasty: libzmq checks the bytes that it has read before it writes its own, and then
	// closes, so that we may have nothing to check and see the end.
	hasty bool
}

// expectation returns the reports of both monitors about a link, and the error that ours
// matches.
type expectation func(*matrixLink) (ours, theirs verdict, err error)

// one is a pair that could talk, for refusals that are not about the types.
func one() []pair { return pairs(true)[:1] }

// byServer gives the first verdict to the server, and the second to the client.
func byServer(server, client verdict, atServer, atClient error) expectation {
	return func(l *matrixLink) (verdict, verdict, error) {
		if l.security.ours.server {
			return server, client, atServer
		}
		return client, server, atClient
	}
}

// both gives the same verdict to both sides.
func both(v verdict, err error) expectation {
	return func(*matrixLink) (verdict, verdict, error) { return v, v, err }
}

func refusals() []refusal {
	with := func(mechanism string) func(a, b role) bool {
		return func(a, b role) bool { return fits(a, b) && a.mechanism == mechanism }
	}
	return []refusal{
		{
			name: "password", pairs: one(), securities: securities(wrongPassword, with("PLAIN")),
			expect: byServer(auth400, auth400, zmtp.ErrDenied, zmtp.ErrRefused),
		}, {
			name: "client key", pairs: one(), securities: securities(wrongClient, with("CURVE")),
			expect: byServer(auth400, auth400, zmtp.ErrDenied, zmtp.ErrRefused),
		}, {
			name: "server key", pairs: one(), securities: securities(wrongServer, with("CURVE")),
			expect: byServer(notOurs, closed, zmtp.ErrCryptographic, nil),
		}, {
			name: "mechanism", pairs: one(),
			securities: securities(noFault, func(a, b role) bool { return a.mechanism != b.mechanism }),
			expect:     both(mismatch, zmtp.ErrMechanism), hasty: true,
		}, {
			name: "type", pairs: pairs(false), securities: securities(noFault, with("NULL")),
			expect: func(*matrixLink) (verdict, verdict, error) { return wrongType, ended, zmtp.ErrIncompatible }, hasty: true,
		},
	}
}

// TestInteropMatrixRefused has all links refused that must not come about, on
// both sides.
func TestInteropMatrixRefused(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	want := 0
	for _, r := range refusals() {
		t.Run(r.name, func(t *testing.T) {
			m.each(t, m.span(r.pairs, r.securities), func(t *testing.T, l *matrixLink) { m.refuse(t, l, r) })
		})
		n := len(r.pairs) * len(r.securities) * len(sides) * len(transports)
		t.Logf("%s: %d", r.name, n)
		want += n
	}
	counts(t, "refusals", m.refusals.Load(), want)
}

// refuse runs one link and compares the monitors' reports.
func (m *matrix) refuse(t *testing.T, l *matrixLink, r refusal) {
	ctx := timeLimit(t)
	events := newEvents()
	m.connect(t, l, sockets.Options{Monitor: events.Tell}, true)
	ours, theirs, condition := r.expect(l)

	var e sockets.Event
	testenv.Eventually(t, "the handshake ends", func() bool {
		all := events.All()
		i := slices.IndexFunc(all, func(e sockets.Event) bool {
			return e.Kind == sockets.EventHandshakeFailed || e.Kind == sockets.EventHandshakeSucceeded
		})
		if i >= 0 {
			e = all[i]
		}
		return i >= 0
	})
	number, value := e.Code()
	got := verdict{eventName(number), value}.plain()
	if r.hasty && got == closed {
		ours, condition = closed, nil
	}
	var peer *sockets.PeerError
	if got != ours || condition != nil && !errors.Is(e.Err, condition) || !errors.As(e.Err, &peer) {
		t.Errorf("our monitor tells %v (%v), want %v (%v)", got, e.Err, ours, condition)
	}
	var told struct {
		Event string
		Value uint32
	}
	check(t, m.call(ctx, "verdict", l, nil, &told))
	if got := (verdict{told.Event, told.Value}).plain(); got != theirs {
		t.Errorf("libzmq's monitor tells %v, want %v", got, theirs)
	}
	m.refusals.Add(1)
}

// plain leaves out a value that means nothing.
func (v verdict) plain() verdict {
	if v.event == closed.event || v.event == ended.event {
		v.value = 0
	}
	return v
}

// eventName is libzmq's name of the event that ends a handshake.
func eventName(number uint16) string {
	switch number {
	case 0x0800:
		return "HANDSHAKE_FAILED_NO_DETAIL"
	case 0x1000:
		return "HANDSHAKE_SUCCEEDED"
	case 0x2000:
		return "HANDSHAKE_FAILED_PROTOCOL"
	case 0x4000:
		return "HANDSHAKE_FAILED_AUTH"
	}
	return "another event"
}
