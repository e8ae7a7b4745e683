package jsonline

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzJSONField(f *testing.F) {
	for _, s := range []string{"", "plain", "quote\" back\\slash", "line\nfeed\r\t", "\x00\x01\x1f\x7f", "é€😀", "\xff\xfe", "<&>", "\u2028"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		line := append(AppendField([]byte{'{'}, "value", text), '}')
		if bytes.ContainsAny(line, "\n\r") {
			t.Fatalf("more than one line: %q", line)
		}
		var got struct {
			Value       *string `json:"value"`
			ValueBase64 []byte  `json:"value_base64"`
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		back := got.ValueBase64
		if got.Value != nil {
			back = []byte(*got.Value)
		}
		if !bytes.Equal(back, text) {
			t.Fatalf("%q came back as %q by way of %s", text, back, line)
		}
	})
}
