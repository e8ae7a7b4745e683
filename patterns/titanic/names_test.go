package titanic

import (
	"strings"
	"testing"
	"unsafe"

	"clustermap/patterns/majordomo"
)

// TestServiceNames: requests of a service share one copy of its name, and replies have
// none, so the memory of an entry does not depend on it.
func TestServiceNames(t *testing.T) {
	t.Parallel()
	b := newFakeBroker()
	s := testServer(t, b, nil)
	name := strings.Repeat("n", majordomo.MaxServiceName)
	var all []*entry
	var ids []string
	for range 2 {
		ids = append(ids, submit(t, s, name, "x"))
		id, err := ParseUUID(ids[len(ids)-1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entryOf(t, s.store, id))
	}
	service := func(e *entry) string {
		s.dispatch.mu.Lock()
		defer s.dispatch.mu.Unlock()
		return e.service
	}
	one, two := service(all[0]), service(all[1])
	if one != name || two != name || unsafe.StringData(one) != unsafe.StringData(two) {
		t.Errorf("%q and %q are not one", one, two)
	}
	b.serve(name, echo)
	for i, e := range all {
		answered(t, s, ids[i])
		eventually(t, "the name is given up", func() bool { return service(e) == "" })
	}
}
