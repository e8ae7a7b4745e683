package rights

import (
	"errors"
	"strings"
	"testing"

	"clustermap/internal/kvmsg"
	"clustermap/internal/testenv"
)

func newRole(t *testing.T, read, write []string) *Role {
	t.Helper()
	r, err := NewRole("x", read, write, false, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A topic is allowed if every key that begins with it is.
func TestTopics(t *testing.T) {
	t.Parallel()
	some, all, none := newRole(t, []string{"/a/", "/b/c/"}, nil), Root("root"), newRole(t, nil, nil)
	for _, topic := range []string{"/a/", "/a/x", "/a/x/", "/b/c/", "HUGZ", "HUGZ\x00"} {
		if !some.MayHear([]byte(topic)) || !all.MayHear([]byte(topic)) {
			t.Errorf("%q is refused", topic)
		}
	}
	for _, topic := range []string{"", "/", "/a", "/b/", "/b/c", "/ab/", "/A/", "H", "HUG", "$lease/", "/a\x00/"} {
		if some.MayHear([]byte(topic)) || none.MayHear([]byte(topic)) {
			t.Errorf("%q is allowed", topic)
		}
		if !all.MayHear([]byte(topic)) {
			t.Errorf("%q is refused for one who may read all", topic)
		}
	}
}

// FuzzRole: a role allows exactly what one of its prefixes covers.
func FuzzRole(f *testing.F) {
	f.Add("/a/ /b/c/", "/a/ /k", "/ab/x")
	f.Add("", "/a/ /a/b/ /a/b", "/a")
	f.Fuzz(func(t *testing.T, read, write, key string) {
		reads, writes := strings.Split(read, " "), strings.Split(write, " ")
		r, err := NewRole("x", reads, writes, false, Limits{})
		if err != nil {
			if e := (*RoleError)(nil); !errors.As(err, &e) {
				t.Fatalf("%T", err)
			}
			return
		}
		covered := func(specs []string) bool {
			for _, s := range specs {
				if s == "" || s == key || strings.HasSuffix(s, "/") && strings.HasPrefix(key, s) {
					return true
				}
			}
			return false
		}
		if got := r.MayRead([]byte(key)); got != covered(reads) {
			t.Errorf("%q reads %q: %v", reads, key, got)
		}
		if got := r.MayWrite([]byte(key)); got != covered(writes) {
			t.Errorf("%q writes %q: %v", writes, key, got)
		}
		if got := r.MayHear([]byte(key)); got != (covered(reads) || strings.HasPrefix(key, "HUGZ")) {
			t.Errorf("%q hears %q: %v", reads, key, got)
		}
	})
}

// Roles are equal if clients may do the same.
func TestEqualRoles(t *testing.T) {
	t.Parallel()
	a := newRole(t, []string{"/a/", "/a/b/"}, []string{"/k"})
	if !a.Equal(newRole(t, []string{"/a/"}, []string{"/k"})) {
		t.Error("one with a part that is covered is another one")
	}
	for _, other := range []*Role{nil, newRole(t, []string{"/a/"}, nil), newRole(t, nil, []string{"/k"}), Root("x"), Peer("x")} {
		if a.Equal(other) || other.Equal(a) {
			t.Errorf("%+v is equal", other)
		}
	}
	if !(*Role)(nil).Equal(nil) {
		t.Error("nobody is not nobody")
	}
}

// Checks do not allocate.
func TestChecksDoNotAllocate(t *testing.T) {
	r := newRole(t, []string{"/a/", "/b/", "/c/"}, []string{"/a/", "/b/", "/c/x"})
	key := []byte("/b/key")
	if n := testenv.Allocs(1, 100, func() {
		if !r.MayRead(key) || !r.MayWrite(key) || !r.MayHear(key) {
			t.Error("denied")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// The texts say who may not do what.
func TestAccessErrors(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*kvmsg.AccessError{
		`chp: access denied: "a" may not write "/k"`:         {Name: "a", Verb: kvmsg.VerbWrite, Key: "/k"},
		`chp: access denied: this client may not write that`: {Verb: kvmsg.VerbWrite},
		`chp: access denied: "a" may not read the whole map`: {Name: "a", Verb: kvmsg.VerbRead},
		`chp: access denied: "a\n" is not an administrator`:  {Name: "a\n", Verb: kvmsg.VerbAdmin},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
