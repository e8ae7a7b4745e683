package chp

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// A clone of an event has the same content, stays the same when the memory of the event
// changes, and costs one allocation.
func TestEventClone(t *testing.T) {
	t.Parallel()
	e := Event{Op: OpSet, Cause: CauseSet, Key: []byte("/k"), Value: []byte("v"), Sequence: 7, UUID: []byte("0123456789abcdef"), Properties: []byte("a=b\n"), TTL: 3}
	kept := e.Clone()
	if !reflect.DeepEqual(kept, e) {
		t.Errorf("the clone is %+v, want %+v", kept, e)
	}
	for _, b := range [][]byte{e.Key, e.Value, e.UUID, e.Properties} {
		clear(b)
	}
	if got := fmt.Sprintf("%s %s %s %s", kept.Key, kept.Value, kept.UUID, kept.Properties); got != "/k v 0123456789abcdef a=b\n" {
		t.Errorf("after the event has gone, the clone has %q", got)
	}
	_ = append(kept.Key, 'x') // must not write into the bytes that follow
	if string(kept.Value) != "v" {
		t.Errorf("appending to the key changes the value to %q", kept.Value)
	}
	if e := (Event{Op: OpSynced, Sequence: 7}); !reflect.DeepEqual(e.Clone(), e) {
		t.Errorf("the clone of %+v is %+v", e, e.Clone())
	}
}

// The error for a key outside of a view of a server names the key and the view.
func TestViewOfServerNamesKeyOutside(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := startServer(t, ServerOptions{})
	for prefix, want := range map[string]string{
		"/flags/": `chp: key "dark" is outside of the view of "/flags/"`,
		"/flags":  `chp: key "dark" is outside of the view of "/flags", a single key`,
	} {
		v := newView(t, s, prefix, ViewOptions[int]{})
		for _, err := range []error{v.Set(ctx, "dark", 1), v.Delete(ctx, "dark")} {
			if err == nil || err.Error() != want || !errors.Is(err, ErrOutsideSubtrees) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}
