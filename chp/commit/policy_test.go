package commit

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Policy{
		"always":         Always(),
		"never":          Never(),
		"interval":       {},
		"interval=100ms": Interval(100 * time.Millisecond),
		"interval=2s":    Interval(2 * time.Second),
	} {
		p, err := ParsePolicy(text)
		if err != nil || p != want {
			t.Errorf("%q: %v, %v", text, p, err)
		}
		if q, err := ParsePolicy(p.String()); err != nil || q != p {
			t.Errorf("%q: its String %q reads as %v, %v", text, p, q, err)
		}
	}
	for _, text := range []string{"", "Always", "interval=", "interval=0s", "interval=-1s", "interval=5", "sometimes"} {
		if p, err := ParsePolicy(text); err == nil {
			t.Errorf("%q reads as %v", text, p)
		}
	}
	if s := (Policy{}).String(); s != "interval=100ms" {
		t.Errorf("the default is %s", s)
	}
	var p Policy
	set := flag.NewFlagSet("", flag.ContinueOnError)
	set.TextVar(&p, "sync", Policy{}, "")
	if err := set.Parse([]string{"-sync", "always"}); err != nil || !p.IsAlways() || p.Every() != 0 {
		t.Error(p, err)
	}
}
