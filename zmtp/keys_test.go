package zmtp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Key pairs from libzmq's zmq_curve_keypair, and the example in its manual.
var keyPairs = [][2]string{
	{"@vOz3gj)2n(PBO&)uiVqbwK@=C!Q8e6P7RiT&b6&", "s1#:fHsdW4C+qE-Zv/{b]-{bafUZ#S7lh{MdjZI/"},
	{"I%0ym!qt5wBEN+&.-*^(=76QY+%gtvNCelWBE(PB", "a@{K=@$XtrUV{e#Eg#jyIv@Lezpuo$o=/!uZS=z?"},
	{"1S*xAY&Cyc]&j9AIb):Bq]c$Z0vRf5+E1p&EHNFx", "ezV&=Ho.mTxgr(sCH.=v2Js:TRSq8q3jTav6ride"},
	{"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"},
}

func TestKeysOfLibzmq(t *testing.T) {
	t.Parallel()
	for _, pair := range keyPairs {
		secret, err := ParseSecretKey(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := secret.Public().String(); got != pair[0] {
			t.Errorf("public %s, want %s", got, pair[0])
		}
		if secret.Z85() != pair[1] {
			t.Error("another secret")
		}
	}
}

func TestGenerateKeyPair(t *testing.T) {
	t.Parallel()
	a, b := GenerateKeyPair(), GenerateKeyPair()
	if a.Public == b.Public || a.Secret == b.Secret || a.Public.IsZero() || a.Secret.IsZero() {
		t.Error("keys are not random")
	}
	if a.Secret.Public() != a.Public {
		t.Error("keys do not belong together")
	}
	public, err := ParsePublicKey(a.Public.String())
	if public != a.Public || err != nil {
		t.Error(public, err)
	}
	if !(PublicKey{}).IsZero() || !(SecretKey{}).IsZero() {
		t.Error("zero is not zero")
	}
}

func TestParseKeyErrors(t *testing.T) {
	t.Parallel()
	good := keyPairs[0][1]
	for _, text := range []string{"", good[1:], good + "0", good + "00000", good[:39] + " ", "#####" + good[5:]} {
		_, err := ParsePublicKey(text)
		wantError(t, err, ErrMalformed)
		k, err := ParseSecretKey(text)
		wantError(t, err, ErrMalformed)
		if len(text) > 0 && strings.Contains(err.Error(), text) || !k.IsZero() {
			t.Errorf("%v tells the key", err)
		}
	}
}

// TestSecretKeyIsNotPrinted tries every way to format a value in the standard
// library.
func TestSecretKeyIsNotPrinted(t *testing.T) {
	t.Parallel()
	pair := GenerateKeyPair()
	secret := pair.Secret
	var all strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%#x", "%d", "%08b", "%o", "%c", "%U", "%t"} {
		for _, value := range []any{secret, &secret, pair, &pair, []SecretKey{secret}, map[string]SecretKey{"k": secret}} {
			text := fmt.Sprintf(verb, value)
			if value == any(secret) && !strings.Contains(text, "redacted") {
				t.Errorf("%s: %s", verb, text)
			}
			all.WriteString(text)
		}
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&all, nil), slog.NewJSONHandler(&all, nil)} {
		slog.New(handler).Info("m", "key", secret, "pair", pair, "pointer", &secret)
	}
	b, err := json.Marshal(pair)
	if err != nil || !bytes.Contains(b, []byte("redacted")) {
		t.Errorf("%s %v", b, err)
	}
	all.Write(b)
	all.WriteString(secret.String() + secret.GoString())
	for _, form := range []string{secret.Z85(), fmt.Sprintf("%x", secret[:]), fmt.Sprintf("%X", secret[:]),
		fmt.Sprintf("% x", secret[:]), fmt.Sprint(secret[:]), strings.Trim(fmt.Sprint(secret[:8]), "[]"),
		strings.Trim(strings.ReplaceAll(fmt.Sprint(secret[:8]), " ", ","), "[]"), string(secret[:8])} {
		if strings.Contains(all.String(), form) {
			t.Errorf("printed: %s", form)
		}
	}
}

func TestKeysAsText(t *testing.T) {
	t.Parallel()
	in := `{"Public":"` + keyPairs[1][0] + `","Secret":"I%0ym!qt5wBEN+&.-*^(=76QY+%gtvNCelWBE(PB"}`
	var pair KeyPair
	if err := json.Unmarshal([]byte(in), &pair); err != nil {
		t.Fatal(err)
	}
	if pair.Public.String() != keyPairs[1][0] || pair.Secret.Z85() != keyPairs[1][0] {
		t.Error("other keys")
	}
	if err := json.Unmarshal([]byte(`{"Secret":"x"}`), &pair); err == nil {
		t.Error("no error")
	}
	b, err := pair.Public.MarshalText()
	if string(b) != keyPairs[1][0] || err != nil {
		t.Errorf("%s %v", b, err)
	}
}
