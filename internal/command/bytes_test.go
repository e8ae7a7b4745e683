package command

import "testing"

func TestBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Bytes{"0": 0, "17": 17, "1KiB": 1024, "3 MiB": 3 << 20, "1GiB": 1 << 30} {
		var b Bytes
		if err := b.Set(text); err != nil || b != want {
			t.Errorf("%q: %d, %v", text, int(b), err)
		}
		var back Bytes
		if err := back.Set(b.String()); err != nil || back != b {
			t.Errorf("%q printed as %q", text, b.String())
		}
	}
	for _, text := range []string{"", "x", "-1", "1.5KiB", "KiB", "99999999999GiB", "1TB"} {
		var b Bytes
		if err := b.Set(text); err == nil {
			t.Errorf("%q was taken for %d", text, int(b))
		}
	}
}
