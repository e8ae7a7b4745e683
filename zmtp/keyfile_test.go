package zmtp

import (
	"errors"
	"strings"
	"testing"
)

// TestKeyFile: a key file is parsed as it is written, also after an editor has changed the
// ends of its lines, and every other text is an error that does not reveal it.
func TestKeyFile(t *testing.T) {
	t.Parallel()
	pair := GenerateKeyPair()
	text := string(AppendKeyFile(nil, pair))
	for _, same := range []string{text, strings.TrimSpace(text), text + "\n", strings.ReplaceAll(text, "\n", "\r\n")} {
		if got, err := ParseKeyFile([]byte(same)); err != nil || got != pair || !IsKeyFile([]byte(same)) {
			t.Errorf("%q: %v", same, err)
		}
	}
	secret := pair.Secret.Z85()
	for end := range len(text) - 1 {
		if got, err := ParseKeyFile([]byte(text[:end])); !errors.Is(err, ErrMalformed) || got != (KeyPair{}) {
			t.Errorf("the first %d bytes: %v", end, err)
		}
	}
	for name, other := range map[string]string{
		"another public key":  strings.Replace(text, pair.Public.String(), GenerateKeyPair().Public.String(), 1),
		"another head":        "x" + text,
		"a line more":         text + secret + "\n",
		"the lines exchanged": keyFileHead + "\n" + keyFileSecret + secret + "\n" + keyFilePublic + pair.Public.String() + "\n",
		"an invalid secret":   strings.Replace(text, secret, secret[:39]+"~", 1),
	} {
		got, err := ParseKeyFile([]byte(other))
		if !errors.Is(err, ErrMalformed) || got != (KeyPair{}) || strings.Contains(err.Error(), secret[:39]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
