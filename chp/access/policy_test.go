package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"clustermap/chp"
	"clustermap/internal/hosts"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"

	"golang.org/x/crypto/bcrypt"
)

func parse(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newKey() string {
	return zmtp.GenerateKeyPair().Public.String()
}

// What no rule allows is denied, rules add up, and no prefix reaches beyond a slash.
func TestPolicyAllowsWhatItsRulesSay(t *testing.T) {
	t.Parallel()
	p := parse(t, `
[users.a]
groups = ["g", "h"]
[users.b]
groups = ["h"]
[users.root]
[users.nobody]
[[rules]]
who = ["a"]
read = ["/a/"]
write = ["/a/b/", "/a/key"]
[[rules]]
who = ["@g"]
read = ["/g/"]
[[rules]]
who = ["@h"]
write = ["/h/"]
[[rules]]
who = ["root"]
read = [""]
write = [""]
admin = true
[[rules]]
who = ["anonymous", "b"]
read = ["/open/"]
`)
	const r, w, admin = chp.VerbRead, chp.VerbWrite, chp.VerbAdmin
	for _, test := range []struct {
		who  string
		verb chp.Verb
		key  string
		ok   bool
	}{
		{"a", r, "/a/x", true}, {"a", r, "/a/", true}, {"a", r, "/a/x/", true}, {"a", r, "/a", false}, {"a", r, "/ab/x", false}, {"a", r, "/", false}, {"a", r, "", false},
		{"a", r, "/b/", false}, {"a", r, "/a\x00/", false}, {"a", r, "/A/x", false}, {"a", r, "/g/x", true}, {"a", r, "$lease/", false},
		{"a", w, "/a/b/c", true}, {"a", w, "/a/c", false}, {"a", w, "/a/key", true}, {"a", w, "/a/key2", false}, {"a", w, "/a/key/x", false}, {"a", w, "/h/x", true}, {"a", w, "/g/x", false},
		{"a", admin, "", false}, {"b", w, "/h/x", true}, {"b", r, "/h/x", false}, {"b", r, "/open/x", true},
		{"root", r, "", true}, {"root", r, "x", true}, {"root", w, "$lease/0", true}, {"root", admin, "", true},
		{"nobody", r, "/open/x", false}, {"nobody", w, "/open/x", false}, {"anonymous", r, "/open/x", true}, {"anonymous", w, "/open/x", false},
		{"", r, "/open/x", false}, {"unknown", r, "/open/x", false}, {"*", r, "/open/x", false}, {"@g", r, "/g/x", false},
	} {
		err := p.Allow(test.who, test.verb, test.key)
		if ok := err == nil; ok != test.ok {
			t.Errorf("%s %v %q: %v", test.who, test.verb, test.key, err)
		}
		var denied *chp.AccessError
		if err != nil && (!errors.As(err, &denied) || denied.Verb != test.verb || denied.Key != test.key || !errors.Is(err, &chp.MessageError{Reason: chp.ReasonAccess})) {
			t.Errorf("%s %v %q: %#v", test.who, test.verb, test.key, err)
		}
	}
	if got := p.Users(); !slices.Equal(got, []string{"a", "b", "nobody", "root"}) {
		t.Errorf("users %q", got)
	}
	if got := p.Role("a").Reads(); !slices.Equal(got, []string{"/a/", "/g/"}) {
		t.Errorf("a reads %q", got)
	}
}

// Everybody means everybody, and without a rule for them nobody is anonymous.
func TestPolicyOfEverybody(t *testing.T) {
	t.Parallel()
	p := parse(t, "[users.a]\n[[rules]]\nwho = [\"*\"]\nread = [\"/a/\"]\n[[limits]]\nwho = [\"*\"]\nupdates = 1000\n[[limits]]\nwho = [\"a\"]\nupdates = 2000\nbytes = 70000\n")
	for _, name := range []string{"a", Anonymous} {
		if p.Allow(name, chp.VerbRead, "/a/") != nil {
			t.Errorf("%s may not", name)
		}
	}
	if a, b := p.Role("a").Limits(), p.Role(Anonymous).Limits(); a != (chp.Limits{Updates: 2000, Bytes: 70000}) || b != (chp.Limits{Updates: 1000}) {
		t.Errorf("limits %+v and %+v", a, b)
	}
	if p := parse(t, "[users.a]\n[[rules]]\nwho = [\"a\"]\nread = [\"/a/\"]\n"); p.Role(Anonymous) != nil {
		t.Error("anonymous clients have a role without a rule")
	}
	if p := parse(t, "[users.Anna]\nplain = '$2a$14$"+strings.Repeat("a", 53)+"'"); p.Role("Anna") == nil || p.Role("anna") != nil {
		t.Error("the case of a name does not count")
	}
	if p := parse(t, ""); p.Role(Anonymous) != nil || len(p.Users()) > 0 {
		t.Error("an empty file allows something")
	}
}

// A file with a mistake is refused, with the place if the form is wrong, and the names if the meaning is.
func TestPolicyMistakes(t *testing.T) {
	t.Parallel()
	key := newKey()
	_, token := NewToken()
	rule := "[[rules]]\nwho = [\"a\"]\n"
	for text, want := range map[string]string{
		"[users.a]\nnothing = 1":                  "line 2, column 1: there is no users.a.nothing",
		"[users.a\n":                              "line 1",
		"[users.a]\ncurve = 1":                    "line 2",
		"[users.a]\n[users.a]":                    "line 2",
		"[users.\"*\"]":                           "want a name",
		"[users.\"@a\"]":                          "want a name",
		"[users.\"\"]":                            "want a name",
		"[users.\"a b\"]":                         "want a name",
		"[users.\"a\\u0000\"]":                    "want a name",
		"[users.\"\u0430\"]":                      "want a name", // Cyrillic
		"[users.\"a\u0308\"]":                     "want a name",
		"[users.anonymous]":                       "want a name",
		"[users." + strings.Repeat("a", 65) + "]": "want a name",
		"[users.a]\ngroups = [\"\"]":              "group",
		"[users.a]\ncurve = [\"short\"]":          "not a public key",
		"[users.a]\nplain = \"secret\"":           "not a hash",
		"[users.a]\nplain = '$2a$15$" + strings.Repeat("a", 53) + "'": "a cost of 15",
		"[Users.a]":             "there is no Users",
		"[users.a]\nToken = []": "there is no Token",
		"[users.a]\n" + rule + "read = ['/a/']\nREAD = ['']":                               "there is no READ",
		"[[limits]]\nwho = ['*']\nupdates = 1000\n[[Limits]]\nwho = ['*']\nupdates = 9000": "there is no Limits",
		"[users.a]\ntoken = [\"secret\"]":                                                  "not a hash",
		"[users.a]\ncertificate = [\"\"]":                                                  "certificate",
		"[users.a]\ncurve = ['" + key + "']\n[users.b]\ncurve = ['" + key + "']":           `has the key of "a"`,
		"[users.a]\ntoken = ['" + token + "']\n[users.b]\ntoken = ['" + token + "']":       `has the token of "a"`,
		"[users.a]\ncertificate = ['x']\n[users.b]\ncertificate = ['x']":                   `has the certificate of "a"`,
		"[[rules]]\nread = [\"/a/\"]":                                                      "who is empty",
		"[[rules]]\nwho = [\"b\"]\nread = [\"/a/\"]":                                       `no user "b"`,
		"[[rules]]\nwho = [\"@b\"]\nread = [\"/a/\"]":                                      `group "b"`,
		"[users.a]\n" + rule:                                                               "allows nothing",
		"[users.a]\n" + rule + "read = [\"/\"]":                                            "the whole map",
		"[users.a]\n" + rule + "write = [\"/\"]":                                           "the whole map",
		"[users.a]\n" + rule + "read = [\"/a\"]":                                           "does not end with a slash",
		"[users.a]\n" + rule + "read = [\"a/\"]":                                           "does not begin with a slash",
		"[users.a]\n" + rule + "read = [\"/\\u0000/\"]":                                    "NUL",
		"[users.a]\n" + rule + "write = [\"HUGZ\"]":                                        "not a valid key",
		"[[limits]]\nwho = [\"*\"]":                                                        "want updates",
		"[[limits]]\nwho = [\"*\"]\nupdates = 999":                                         "want updates",
		"[[limits]]\nwho = [\"c\"]\nupdates = 1":                                           `no user "c"`,
		strings.Repeat("#", maxFile+1):                                                     "bytes",
	} {
		_, err := Parse([]byte(text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// An error shows no secret of the file.
func TestPolicyMistakesShowNoSecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"[users.a]\nplain = \"hunter2\"", "[users.a]\ntoken = [\"hunter2\"]", "[users.a]\nplain = [\"hunter2\"]", "[users.a]\nplain = hunter2", "[users.a]\ncurve = [\"hunter2\"]"} {
		if _, err := Parse([]byte(text)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Keys, passwords, tokens and certificates are those of their users, and of nobody else.
func TestPolicyKnowsItsUsers(t *testing.T) {
	t.Parallel()
	key, other := newKey(), newKey()
	token, hash := NewToken()
	password := quickHash(t, "correct horse")
	p := parse(t, fmt.Sprintf("[users.a]\ncurve = ['%s']\ntoken = ['%s']\nplain = '%s'\ncertificate = ['a.example']\n[users.b]\n", key, hash, password))
	k, _ := zmtp.ParsePublicKey(key)
	o, _ := zmtp.ParsePublicKey(other)
	if name, ok := p.Curve(k); !ok || name != "a" {
		t.Errorf("the key is that of %q, %v", name, ok)
	}
	if name, ok := p.Token(token); !ok || name != "a" {
		t.Errorf("the token is that of %q, %v", name, ok)
	}
	if name, ok := p.Certificate("a.example"); !ok || name != "a" {
		t.Errorf("the certificate is that of %q, %v", name, ok)
	}
	if name, ok := p.Curve(o); ok {
		t.Errorf("another key is that of %q", name)
	}
	for _, wrong := range []string{"", hash, token + "x", "chp_", strings.ToUpper(token)} {
		if name, ok := p.Token(wrong); ok {
			t.Errorf("%q is a token of %q", wrong, name)
		}
	}
	if name, ok := p.Certificate("A.example"); ok {
		t.Errorf("another certificate is that of %q", name)
	}
	for range 2 { // the second time it is remembered
		for _, test := range []struct {
			name, password string
			want           bool
		}{{"a", "correct horse", true}, {"a", "correct horse ", false}, {"a", "", false}, {"b", "", false}, {"b", "correct horse", false}, {"c", "correct horse", false}, {"", "", false}, {"a", "correct horse\x00", false}} {
			if ok, err := p.Password(t.Context(), test.name, test.password); ok != test.want || err != nil {
				t.Errorf("%q with %q: %v, %v", test.name, test.password, ok, err)
			}
		}
	}
}

// quickHash is HashPassword at the least cost.
func quickHash(t testing.TB, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

// What is remembered of a name and a password is not taken for another name with another password.
func TestNamesAndPasswordsAreNotMixedUp(t *testing.T) {
	t.Parallel()
	p := parse(t, "[users.a]\nplain='"+quickHash(t, "p\x00q")+"'")
	for range 2 {
		if ok, err := p.Password(t.Context(), "a", "p\x00q"); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
		if ok, err := p.Password(t.Context(), "a\x00p", "q"); ok || err != nil {
			t.Errorf("another name: %v, %v", ok, err)
		}
	}
}

// Of wrong passwords a bounded number is remembered, and right ones are not forgotten for them.
func TestPasswordsAreRememberedWithinBounds(t *testing.T) {
	t.Parallel()
	var c compared
	right := c.sum("a", "right")
	c.add(right, true)
	for i := range 2 * maxCompared {
		c.add(c.sum("a", fmt.Sprint(i)), false)
	}
	if same, known := c.get(right); !same || !known || len(c.known) > maxCompared+1 {
		t.Errorf("%v, %v of %d", same, known, len(c.known))
	}
}

// full takes all places of those that are compared, until the function that it returns is called.
func full() (release func()) {
	for range maxHashes {
		hashing.places <- struct{}{}
	}
	return sync.OnceFunc(func() {
		for range maxHashes {
			<-hashing.places
		}
	})
}

// A comparison that has to wait ends with its context.
func TestPasswordWaitsWithItsContext(t *testing.T) {
	p := parse(t, "[users.a]\nplain='"+quickHash(t, "y")+"'")
	defer full()()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, err := p.Password(ctx, "a", "x"); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", ok, err)
	}
}

// Whoever tries passwords in great numbers waits for himself: those with another address have their turn, and so has a
// user whose password is known.
func TestPasswordsThatWaitAreBoundedByAddress(t *testing.T) {
	p := parse(t, "[users.a]\nplain='"+quickHash(t, "right")+"'\n[users.b]\nplain='"+quickHash(t, "known")+"'")
	if ok, err := p.passwordFrom(t.Context(), "10.0.0.1", "b", "known"); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	release := full()
	defer release()
	for i := range maxWaiting {
		running.Go(func() {
			if ok, err := p.passwordFrom(t.Context(), fmt.Sprintf("2001:db8::%x", i+1), "a", fmt.Sprint(i)); ok || err != nil {
				t.Errorf("try %d: %v, %v", i, ok, err)
			}
		})
	}
	testenv.Eventually(t, "all of them wait", func() bool {
		hashing.mu.Lock()
		defer hashing.mu.Unlock()
		return hashing.of[hosts.Of("2001:db8::")] == maxWaiting
	})
	if ok, err := p.passwordFrom(t.Context(), "2001:db8::ffff", "a", "right"); ok || !errors.Is(err, sockets.ErrTemporary) {
		t.Errorf("one more: %v, %v", ok, err)
	}
	if ok, err := p.passwordFrom(t.Context(), "2001:db8::ffff", "b", "known"); !ok || err != nil {
		t.Errorf("who is known: %v, %v", ok, err)
	}
	release()
	if ok, err := p.passwordFrom(t.Context(), "2001:db8:0:1::1", "a", "right"); !ok || err != nil {
		t.Errorf("another address: %v, %v", ok, err)
	}
	running.Wait()
	hashing.mu.Lock()
	defer hashing.mu.Unlock()
	if len(hashing.of) != 0 {
		t.Errorf("%v are left", hashing.of)
	}
}

func TestHashesOfMistakes(t *testing.T) {
	t.Parallel()
	if _, err := HashPassword(strings.Repeat("x", 73)); err != ErrPassword {
		t.Error(err)
	}
	if _, err := HashPassword(""); err != ErrPassword {
		t.Error(err)
	}
	for _, token := range []string{"", "short", "with a space in between it"} {
		if _, err := HashToken(token); err != ErrToken {
			t.Errorf("%q: %v", token, err)
		}
	}
	token, hash := NewToken()
	if again, err := HashToken(token); again != hash || err != nil {
		t.Errorf("%q, %v; want %q", again, err, hash)
	}
}

// FuzzParse: no text makes Parse panic, and what it accepts is a policy that denies what nobody has allowed.
func FuzzParse(f *testing.F) {
	f.Add("[users.a]\ngroups=['g']\n[[rules]]\nwho=['@g','*']\nread=['/a/']\nwrite=['/a/b']\nadmin=true\n[[limits]]\nwho=['a']\nupdates=1\n")
	f.Add("[users.a.b]\n")
	f.Add("users = {a = {curve = []}}\nrules = [{who = ['a'], read = ['']}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse([]byte(text))
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) {
				t.Fatalf("%T", err)
			}
			return
		}
		for _, name := range append(p.Users(), Anonymous) {
			role := p.Role(name)
			if role == nil {
				continue
			}
			for _, key := range []string{"", "/", "/a", "/a/", "/ab/", "/a/b", "x"} {
				covered := slices.ContainsFunc(role.Reads(), func(s string) bool { return strings.HasPrefix(key, s) })
				if ok := p.Allow(name, chp.VerbRead, key) == nil; ok != covered {
					t.Errorf("%s reads %q: %v, of %q", name, key, ok, role.Reads())
				}
			}
		}
	})
}
