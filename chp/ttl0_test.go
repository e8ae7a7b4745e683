package chp

import (
	"testing"
	"time"
)

// The guide's C server gives a key without a ttl the time to live of another one:
// updates for servers that did not announce themselves say ttl=0 instead.
func TestNoTTLIsSaidToForeignServers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for _, test := range []struct {
		ours bool
		none string
	}{{asPlain, "ttl=0\n"}, {asOurs, ""}} {
		s := newScripted(t, test.ours)
		c := activeClient(t, s, ClientOptions{})
		for _, one := range []struct {
			send func() error
			want string
		}{
			{func() error { return c.Set(ctx, "k", []byte("v")) }, test.none},
			{func() error { return c.Set(ctx, "k", []byte("v"), WithTTL(0)) }, test.none},
			{func() error { return c.Set(ctx, "k", []byte("v"), WithProperty("a", "b")) }, "a=b\n" + test.none},
			{func() error { return c.Set(ctx, "k", []byte("v"), WithTTL(time.Minute)) }, "ttl=60\n"},
			{func() error { return c.Set(ctx, "k", []byte("v"), WithProperty("ttl", "7")) }, "ttl=7\n"},
			{func() error { return c.Delete(ctx, "k") }, ""},
		} {
			must(t, one.send())
			if got := s.kvset(); got.properties != one.want {
				t.Errorf("announced %v: properties %q, want %q", test.ours, got.properties, one.want)
			}
		}
	}
}

// Servers in the styles of the guide take it, and the key stays.
func TestInteropNoTTL(t *testing.T) {
	t.Parallel()
	for _, style := range cloneStyles {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			p := cloneServer(t, "--style", style)
			c := cloneClient(t, ClientOptions{}, p)
			_, err := c.SetSync(testContext(t), "/brief", []byte("v"), WithTTL(time.Second))
			must(t, err)
			_, err = c.SetSync(testContext(t), "/stays", []byte("v"))
			must(t, err)
			eventually(t, "the other key expires", func() bool { _, ok := c.Get("/brief"); return !ok })
			if ttl, ok := timeLeft(c, "/stays"); !ok || ttl != 0 {
				t.Errorf("/stays is there: %v, with %v left", ok, ttl)
			}
			wantClone(t, c, p)
		})
	}
}
