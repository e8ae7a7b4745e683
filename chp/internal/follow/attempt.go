package follow

import (
	"errors"

	"clustermap/internal/text"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// Phase is chp.Phase.
type Phase uint8

// The values of Phase, in their order.
const (
	PhaseIdle Phase = iota
	PhaseConnecting
	PhaseSubscribing
	PhaseSnapshot
	PhaseActive
)

// String returns idle, connecting, subscribing, snapshot or active.
func (p Phase) String() string {
	return text.Of(p, "Phase", "idle", "connecting", "subscribing", "snapshot", "active")
}

// MarshalText returns the text of String.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// attempt is what is known of the attempts at one server. status.mu guards it.
type attempt struct {
	server  string
	phase   Phase
	err     error // of the last one that failed
	running int   // attempts under way
	unsure  bool  // see fail
}

// began, reached and ended note the phases of an attempt at the server with an index.
func (s *status) began(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.attempts[index]
	a.running++
	a.phase = max(a.phase, PhaseConnecting)
}

func (s *status) reached(index int, p Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[index].phase = p
}

func (s *status) ended(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.attempts[index]
	if a.running--; a.running > 0 {
		a.phase = PhaseConnecting
	} else {
		a.phase = PhaseIdle
	}
}

// fail records why an attempt failed, unless the failure before it says more: being
// overtaken says less than any, and that a connection broke or could not be made less than
// that the peer is not a CHP server, whose connections may end in any way. untried says that
// the server's name has an address at which no attempt has failed lately. Then another attempt
// may succeed, and so it may after one connection that the server has closed in answer to HELLO:
// it could have been about to end, or have had too many connections.
func (s *status) fail(index int, err error, untried bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.attempts[index]
	a.unsure = untried || errors.Is(err, sockets.ErrServerKey) && !errors.Is(a.err, sockets.ErrServerKey)
	if a.err != nil && errors.Is(err, ErrOvertaken) {
		return
	}
	broken := errors.Is(err, ErrDisconnected) || errors.Is(err, ErrUnreachable)
	if foreign(a.err) && broken && !Permanent(err) {
		return
	}
	a.err = err
}

// foreign reports whether an error says that the peer is not a CHP server.
func foreign(err error) bool {
	return errors.Is(err, zmtp.ErrVersion) || errors.Is(err, zmtp.ErrMalformed) || errors.Is(err, zmtp.ErrIncompatible)
}

// Attempts calls each for each server, unless one is followed: how far the present attempt
// has come, why the last one failed, whether the server has sent nothing yet, as
// chp.ServerFault documents, and whether another attempt may succeed though that failure alone
// says that it cannot. It reports whether one is followed.
func (s *status) Attempts(each func(server string, p Phase, err error, silent, unsure bool)) (active bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StateActive {
		return true
	}
	for _, a := range s.attempts {
		each(a.server, a.phase, a.err, s.silent.Load() && s.state == StateSyncing && s.server == a.server, a.unsure)
	}
	return false
}
