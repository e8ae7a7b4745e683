package text

import (
	"encoding/json"
	"errors"
	"testing"
)

// TestOf: values without a name are shown as numbers.
func TestOf(t *testing.T) {
	t.Parallel()
	for k, want := range []string{"kind(0)", "one", "two", "kind(3)"} {
		if got := Of(uint8(k), "kind", "", "one", "two"); got != want {
			t.Errorf("%d: %q, want %q", k, got, want)
		}
	}
}

// TestError: an error in a field is its text in JSON, and nothing if there is none.
func TestError(t *testing.T) {
	t.Parallel()
	type fields struct {
		Err error `json:",omitempty"`
	}
	for want, err := range map[string]error{`{}`: nil, `{"Err":"a \"fault\""}`: errors.New(`a "fault"`)} {
		if got, _ := json.Marshal(fields{Error(err)}); string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
