package option

import (
	"errors"
	"testing"
	"time"
)

// TestChecker: all invalid fields are reported at once, and only fields that are not set
// get their defaults.
func TestChecker(t *testing.T) {
	t.Parallel()
	c := Checker{Package: "sockets"}
	set, unset, negative := 3, time.Duration(0), int64(-1)
	Default(&c, "Set", &set, 5)
	Default(&c, "Unset", &unset, time.Second)
	c.If(false, "Good", "is bad")
	c.Valid("Good", nil)
	if err := c.Err(); err != nil || set != 3 || unset != time.Second {
		t.Errorf("%v, %d, %v", err, set, unset)
	}
	Default(&c, "Negative", &negative, 5)
	c.Bad("Key", "has %d bytes", 31)
	c.Valid("Security", errors.New("has no key"))
	want := "sockets: option Negative: is negative\nsockets: option Key: has 31 bytes\nsockets: option Security: has no key"
	err := c.Err()
	if err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	if e, ok := errors.AsType[*Error](err); !ok || e.Package != "sockets" || e.Field != "Negative" {
		t.Errorf("the first is %+v", e)
	}
}
