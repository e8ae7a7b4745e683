package zmtp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// prints returns the results of the usual ways to format v.
func prints(v any) string {
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o", "%c", "%U", "%t", "%e"} {
		fmt.Fprintf(&out, verb+"\n", v)
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("", "v", v)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("", "v", v)
	if text, err := json.Marshal(v); err == nil {
		out.Write(text)
	}
	return out.String()
}

// shows reports whether text contains a secret in one of its usual forms.
func shows(text string, secret []byte) bool {
	forms := []string{
		string(secret), strings.Trim(fmt.Sprint(secret), "[]"), fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret),
		strings.Trim(fmt.Sprintf("%x", []any{secret[0], secret[1], secret[2]}), "[]"),
		fmt.Sprintf("0x%x, 0x%x, 0x%x", secret[0], secret[1], secret[2]),
		strings.Trim(fmt.Sprintf("%b", secret[:3]), "[]"), strings.Trim(fmt.Sprintf("%o", secret[:3]), "[]"),
	}
	if len(secret)%4 == 0 {
		z85, _ := EncodeZ85(secret)
		forms = append(forms, z85)
	}
	for _, form := range forms {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

// No way to format a type of this package shows a secret key or a password.
func TestPrintingShowsNoSecret(t *testing.T) {
	t.Parallel()
	pair, server := GenerateKeyPair(), GenerateKeyPair()
	client := NewCurveClient(CurveClientConfig{Keys: pair, Server: server.Public})
	own := NewCurveServer(CurveServerConfig{Keys: pair})
	plain := NewPlainClient(nil, "user", "open sesame")
	credentials := Credentials{Mechanism: "PLAIN", Values: [][]byte{[]byte("user"), []byte("open sesame")}}
	var key secretKey
	copy(key[:], pair.Secret[:])
	for _, v := range []any{
		pair.Secret, &pair.Secret, pair, &pair, []KeyPair{pair}, map[string]any{"k": pair},
		client, *client, CurveClientConfig{Keys: pair}, NewHandshake(HandshakeConfig{Mechanism: client}),
		own, *own, CurveServerConfig{Keys: pair}, NewHandshake(HandshakeConfig{Mechanism: own}), HandshakeConfig{Mechanism: own},
		plain, *plain, NewHandshake(HandshakeConfig{Mechanism: plain}), credentials, &credentials,
		newCurveCodec(&key, true, 0, 0, Limits{}),
	} {
		text := prints(v)
		if shows(text, pair.Secret[:]) || shows(text, []byte("open sesame")) {
			t.Errorf("printing a %T shows the secret", v)
		}
	}
}
