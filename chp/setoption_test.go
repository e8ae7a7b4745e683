package chp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"clustermap/internal/kvmsg"
)

func TestSetOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts []SetOption
		want string
	}{
		{nil, ""},
		{[]SetOption{WithTTL(30 * time.Second)}, "ttl=30\n"},
		{[]SetOption{WithTTL(0)}, ""},
		{[]SetOption{WithTTL(1500 * time.Millisecond)}, "ttl=1.5\n"},
		{[]SetOption{WithTTL(50 * time.Microsecond)}, "ttl=0.00005\n"},
		{[]SetOption{WithTTL(kvmsg.MaxTTL)}, "ttl=315360000\n"},
		{[]SetOption{WithProperty("a", "b=c"), WithTTL(time.Minute), WithProperty("x", "")}, "a=b=c\nttl=60\nx=\n"},
		{[]SetOption{WithProperty("ttl", "5")}, "ttl=5\n"},
	} {
		got, err := appendOptions(nil, c.opts)
		if err != nil || string(got) != c.want {
			t.Errorf("%v: %q, %v; want %q", c.opts, got, err, c.want)
		}
	}
}

func TestSetOptionsRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []SetOption{
		WithTTL(-1), WithTTL(-time.Second), WithTTL(kvmsg.MaxTTL + 1), {},
		WithProperty("", "x"), WithProperty("ttl", "soon"), WithProperty("a=b", ""), WithProperty("a\n", ""),
		WithProperty("a", "b\n"), WithProperty("a", strings.Repeat("x", kvmsg.MaxProperties)),
	} {
		var refused *MessageError
		if _, err := appendOptions(nil, []SetOption{o}); !errors.As(err, &refused) {
			t.Errorf("%.40v: %v, want a *MessageError", o, err)
		}
	}
}
