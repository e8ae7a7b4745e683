package chp

import (
	"context"
	"errors"
	"testing"

	"clustermap/internal/testenv"
)

// Updates that another door makes for somebody wait for what that one may send in a second, and those whose context ends
// meanwhile are not made. Others do not wait.
func TestUpdatesOnBehalfArePaced(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerOptions{Access: newKeyAccess(t, nil)})
	role := func(name string) *Role {
		r, err := NewRole(RoleOptions{Name: name, Write: []string{""}, Limits: Limits{Updates: 1000}})
		must(t, err)
		return r
	}
	anna := role("anna")
	_, err := s.SetIf(OnBehalf(testContext(t), anna), "/a/1", []byte("v"))
	must(t, err)
	s.rights.Charge(anna, 1_000_000, 0) // as if she had sent so much over a connection
	ctx, cancel := context.WithCancel(testContext(t))
	set := testenv.Blocked(t, "chp.(*Server).paceFor", func() error {
		_, err := s.SetIf(OnBehalf(ctx, anna), "/a/2", []byte("v"))
		return err
	})
	_, err = s.SetIf(OnBehalf(testContext(t), role("bert")), "/b", []byte("v"))
	must(t, err)
	cancel()
	if err := <-set; !errors.Is(err, context.Canceled) || s.Len() != 2 {
		t.Errorf("%v, and %d keys", err, s.Len())
	}
}
