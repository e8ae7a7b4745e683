package titanic

import (
	"errors"
	"path/filepath"
	"testing"
)

// TestReservedService: a request for one of the broker's services is answered 400 and not
// stored.
func TestReservedService(t *testing.T) {
	t.Parallel()
	y := newSystem(t, nil)
	for _, service := range []string{"mmi.service", "mmi."} {
		y.want(y.ask("titanic.request", service, "x"), "400")
		if _, err := y.client.Submit(testContext(t), service, []byte("x")); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", service, err)
		}
	}
	if st := y.server.Status(); st.Stored != 0 || st.Invalid != 2 {
		t.Errorf("%+v", st)
	}
	y.submit("mmi", "x") // an ordinary name
}

// TestStoreInNewDirectories: the parents of the store's directory are made as well.
func TestStoreInNewDirectories(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b", "c") + string(filepath.Separator)
	id := mustPut(t, testStore(t, dir, nil), "echo", "x")
	if id == (UUID{}) {
		t.Error("no UUID")
	}
}
