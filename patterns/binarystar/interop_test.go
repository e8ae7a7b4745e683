package binarystar

import (
	"context"
	"fmt"
	"testing"

	"clustermap/internal/interop"
)

// mixed is a couple of a node and a guide program.
type mixed struct {
	*couple
	ours, theirs int
	guide        *interop.Process
}

func newMixed(t *testing.T, ours Role) *mixed {
	t.Helper()
	interop.Require(t)
	m := &mixed{couple: newCouple(t, nil)}
	m.ours = int(ours - RolePrimary)
	m.theirs = 1 - m.ours
	return m
}

// startGuide starts the guide program, also after it was killed.
func (m *mixed) startGuide() {
	m.t.Helper()
	o := m.opts[m.theirs]
	args := []string{
		"--peer", o.Peer,
		"--interval", fmt.Sprint(o.Interval.Seconds()), "--timeout", fmt.Sprint(o.Timeout.Seconds()),
	}
	if o.Role == RoleBackup {
		args = append(args, "--backup")
	}
	m.guide = interop.Python(m.t, "bstar.py", args...)
	m.hears[m.ours].lead(m.guide.Endpoint)
}

func (m *mixed) killGuide() {
	m.hears[m.ours].astray()
	m.guide.Kill()
}

func (m *mixed) node() *Node { return m.nodes[m.ours] }

// guideState returns the state of the guide program, or 0 if it has ended.
func (m *mixed) guideState() State {
	m.t.Helper()
	var got struct{ State State }
	if err := m.guide.Start(interop.Op{"op": "state"}).Wait(testContext(m.t), &got); err != nil {
		return 0
	}
	return got.State
}

// undisturbed fails the test if the guide program received an invalid message.
func (m *mixed) undisturbed() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if e, err := m.guide.Next(ctx, "disturbed"); err == nil {
		m.t.Errorf("the guide's program was disturbed: %s", e.Body)
	}
}

// settledOn waits until the guide program and our node have the given states.
func (m *mixed) settledOn(ours, theirs State) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("ours is %v and the guide's %v", ours, theirs), func() bool {
		s := m.node().Status()
		return s.State == ours && m.guideState() == theirs && s.Peer.Alive && s.Peer.Guide && s.Peer.State == theirs
	})
	m.undisturbed()
}

func (m *mixed) electGuide() {
	m.t.Helper()
	eventually(m.t, "the guide's program accepts a vote", func() bool {
		var got struct{ Accept bool }
		m.guide.Call(interop.Op{"op": "vote"}, &got)
		return got.Accept
	})
}

// TestInterop: with a program like the guide's, in either role: start, failover in both
// directions after kill -9, restart, handover.
func TestInterop(t *testing.T) {
	t.Parallel()
	for _, ours := range []Role{RolePrimary, RoleBackup} {
		t.Run("ours is "+ours.String(), func(t *testing.T) {
			t.Parallel()
			m := newMixed(t, ours)
			m.startGuide()
			m.start(m.ours)
			if ours == RolePrimary {
				m.settledOn(StateActive, StatePassive)
			} else {
				m.settledOn(StatePassive, StateActive)
				m.killGuide()
				elect(t, m.node())
				m.startGuide()
				m.settledOn(StateActive, StatePassive)
			}

			m.kill(m.ours)
			m.electGuide()
			m.start(m.ours)
			m.settledOn(StatePassive, StateActive)

			m.killGuide()
			elect(t, m.node())
			m.startGuide()
			m.settledOn(StateActive, StatePassive)

			handOver(t, m.node())
			m.settledOn(StatePassive, StateActive)
		})
	}
}

// TestInteropSplitBrain: a guide program that was stopped, and then continues as active,
// ends when it hears our node. Our node never ends: a primary continues, a backup becomes
// passive, and serves again if the guide program has ended.
func TestInteropSplitBrain(t *testing.T) {
	t.Parallel()
	for _, ours := range []Role{RolePrimary, RoleBackup} {
		t.Run("ours is "+ours.String(), func(t *testing.T) {
			t.Parallel()
			m := newMixed(t, ours)
			m.startGuide()
			m.start(m.ours)
			if ours == RolePrimary {
				m.settledOn(StateActive, StatePassive)
				handOver(t, m.node())
			}
			m.settledOn(StatePassive, StateActive)

			m.guide.Stop()
			elect(t, m.node())
			m.guide.Continue()

			if ours == RolePrimary {
				<-m.guide.Exited()
				m.hears[m.ours].astray()
				elect(t, m.node())
				m.startGuide()
				m.settledOn(StateActive, StatePassive)
				return
			}
			// It depends on which one hears the other first.
			restarted := false
			eventually(t, "one serves, the other one follows", func() bool {
				_, _ = m.node().Vote(testContext(t))
				theirs := m.guideState()
				if theirs == 0 && !restarted {
					restarted = true
					m.startGuide()
				}
				s := m.node().State()
				return s == StateActive && theirs == StatePassive || s == StatePassive && theirs == StateActive
			})
			m.undisturbed()
		})
	}
}
