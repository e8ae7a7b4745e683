package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermap/chp/access"
	"clustermap/internal/commandtest"
	"clustermap/internal/testenv"
	"clustermap/sockets"
)

// detail waits until the detail is of a key with a value.
func (b *tab) detail(key, value string) {
	b.t.Helper()
	b.eventually(`text("#detail h2") === ` + quote(key) + ` && (text("#value") || all("#detail textarea")[0]?.value) === ` + quote(value))
}

// Keys are a tree, which opens where somebody opens it, and follows changes.
func TestKeysAreATree(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(sockets.Security{})
	for i := range 60 {
		s.set(c, fmt.Sprintf("/flags/f%02d", i), "off", fmt.Sprintf("/registry/web/%02d", i), "10.0.0.7:80")
	}
	s.set(c, "/top", "1")
	b := open(t, s.url)
	b.click(`button("Keys")`)
	b.eventually(`text("#keys-note") === "121 keys, as they change"`)
	b.eventually(`all("#tree summary").map(s => s.textContent).join() === "flags/ 60,registry/ 60" && all("#tree .key").length === 1`)
	folder := func(name string) string {
		return `all("#tree summary").find(s => s.textContent.startsWith("` + name + `"))`
	}
	b.click(folder("registry/"))
	b.eventually(folder("web/"))
	b.click(folder("web/"))
	b.eventually(`all("#tree .key").length === 61 && key("/registry/web/07").textContent === "0710.0.0.7:80"`)
	b.click(`key("/registry/web/07")`)
	b.detail("/registry/web/07", "10.0.0.7:80")
	b.eventually(`location.hash === "#keys/registry/web/07"`)

	// A change is there at once; what is open stays open while keys come and go.
	s.set(c, "/registry/web/07", "10.0.0.8:80", "/registry/web/60", "new")
	testenv.Must(t, c.Delete(testenv.Context(t), "/top"))
	b.detail("/registry/web/07", "10.0.0.8:80")
	b.eventually(`key("/registry/web/07").textContent === "0710.0.0.8:80" && key("/registry/web/60") && !key("/top")`)
	b.eventually(`all("#tree .key").length === 61 && key("/registry/web/07").getAttribute("aria-selected") === "true"`)
	b.click(folder("registry/"))
	s.set(c, "/top", "2")
	b.eventually(`key("/top") && all("#tree .key").length === 1`)
	testenv.Must(t, c.Delete(testenv.Context(t), "/registry/web/07"))
	b.eventually(`text("#detail").includes("It is not in the map.")`)

	// Another prefix, with a slash for whoever forgets it.
	b.write(`document.getElementById("prefix")`, "flags")
	b.click(`button("Open")`)
	b.eventually(`text("#keys-note") === "60 keys, as they change" && document.getElementById("prefix").value === "/flags/" && text("#detail") === "Choose a key."`)
}

// What others write is text, whatever it looks like; what is not seen is escaped, and nothing is shown in another order.
func TestHostileKeysAndValuesAreText(t *testing.T) {
	t.Parallel()
	s := serve(t, "--http-write", "--history", "4")
	c := s.client(sockets.Security{})
	hostile := []string{
		"/x/<script>window.hacked=1</script>", "<script>window.hacked=1</script>",
		"/x/<img src=x onerror=window.hacked=1>", "<img src=x onerror=window.hacked=1>",
		"/x/\"'><svg onload=window.hacked=1>&lt;", "javascript:window.hacked=1",
		"/x/%2e%2e/%00#?&=+ ", "{{constructor.constructor('window.hacked=1')()}}",
		"/x/../../status", "dots",
		"//x//", "slashes",
		"/x/\x1b[31mred\u202egnp.exe\u2066", "a\x00b\x07\u202e\u2028c",
		"/x/" + strings.Repeat("w", 200), strings.Repeat("v", 5000),
	}
	s.set(c, hostile...)
	s.set(c, "/x/binary", "\xff\x00<b>", "/x/lines", "one\r\ntwo\n\tthree", "/y/\xff"+strings.Repeat("k", 40)+"1", "first", "/y/\xff"+strings.Repeat("k", 40)+"2", "second")
	b := open(t, s.url+"#keys")
	b.eventually(`text("#keys-note") === "12 keys, as they change"`)
	escaped := strings.NewReplacer("\x1b", `\u001b`, "\u202e", `\u202e`, "\u2066", `\u2066`, "\x00", `\u0000`, "\x07", `\u0007`, "\u2028", `\u2028`)
	for i := 0; i < len(hostile); i += 2 {
		name := escaped.Replace(hostile[i])
		b.click(`key(` + quote(name) + `)`)
		// The area to edit has the value as it is.
		b.detail(name, hostile[i+1])
		b.eventually(`document.querySelector("#detail textarea")`)
	}
	b.picture("hostile")
	b.click(`key("/x/binary")`)
	b.detail("/x/binary", "(5 bytes) ff 00 3c 62 3e")
	b.click(`key("/x/lines")`)
	b.detail("/x/lines", "one\\u000d\ntwo\n\tthree")
	b.eventually(`button("Delete")`)
	if b.is(`button("Save")`) {
		t.Error("the page would change the ends of lines")
	}
	b.eventually(`all("#tree .key").filter(k => k.title.startsWith("(45 bytes) 2f 79 2f ff")).map(k => k.querySelector(".peek").textContent).join() === "first,second"`)

	// An address leads to each of them.
	another := open(t, s.url+"#keys")
	for i := 0; i < len(hostile); i += 2 {
		name := escaped.Replace(hostile[i])
		b.click(`key(` + quote(name) + `)`)
		b.detail(name, hostile[i+1])
		another.run("location.hash = " + quote(get[string](b, "location.hash")))
		another.detail(name, hostile[i+1])
	}
	if b.is(`window.hacked || document.querySelectorAll("script").length !== 1 || document.querySelector("main img, main script, main b, main iframe, main svg:not(#chart)")`) {
		t.Error("something that was written is HTML")
	}
}

// Nobody is offered to change anything unless the server was told so, and it refuses.
func TestPageIsReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	s := serve(t, "--history", "4")
	c := s.client(sockets.Security{})
	s.set(c, "/k", "1", "/k", "2")
	b := open(t, s.url+"#keys/k")
	b.detail("/k", "2")
	b.eventually(`lines("#history").length === 2`)
	b.readOnly()
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		if code, body := s.ask(method, "v1/kv/k", "3", ""); code != 403 || !strings.Contains(body, "urn:clustermap:problem:read-only") {
			t.Errorf("%s: %d %s", method, code, body)
		}
	}
}

// readOnly checks that nothing can be changed, as far as the page shows.
func (b *tab) readOnly() {
	b.t.Helper()
	if b.is(`document.querySelector("textarea") || ["Save", "Delete", "Revert", "New key", "Create"].some(button)`) {
		b.t.Error("there is something to change the map with\n" + b.report())
	}
}

// With --http-write keys are made, set, deleted and reverted; a key that somebody else has changed meanwhile is not, and
// what was typed is not lost.
func TestKeysAreChanged(t *testing.T) {
	t.Parallel()
	s := serve(t, "--http-write", "--history", "8")
	c := s.client(sockets.Security{})
	value := func(key, want string) {
		t.Helper()
		got, ok, err := c.GetSync(testenv.Context(t), key)
		testenv.Must(t, err)
		if string(got) != want || ok != (want != "") {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	area := `all("#detail textarea")[0]`
	s.set(c, "/k", "one")
	b := open(t, s.url+"#keys/k")
	b.detail("/k", "one")
	b.write(area, "two")
	b.eventually(area + `.value === "two"`)
	b.click(`button("Save")`)
	b.eventually(`text("#said") === "It is saved." && lines("#history").length === 2`)
	value("/k", "two")
	b.detail("/k", "two")

	// Somebody else is faster.
	b.provokes(`status of 412 `)
	b.write(area, "mine")
	s.set(c, "/k", "theirs")
	b.eventually(`key("/k").textContent === "ktheirs"`)
	b.click(`button("Save")`)
	b.eventually(`text("#said") === "Nothing is changed: somebody else was faster." && text("#value") === "theirs" && ` + area + `.value === "mine"`)
	b.picture("conflict")
	value("/k", "theirs")
	b.click(`button("Discard")`)
	b.eventually(`!button("Discard")`)
	b.detail("/k", "theirs")
	b.write(area, "mine after all")
	b.eventually(`button("Save")`)
	b.click(`button("Save")`)
	b.eventually(`text("#said") === "It is saved."`)
	value("/k", "mine after all")

	// Back to the first value.
	b.eventually(`lines("#history").length === 4`)
	b.click(`lines("#history").find(r => r.cells[2].textContent === "one")?.querySelector("button")`)
	b.eventually(`text("#said").endsWith(" again.")`)
	value("/k", "one")
	b.detail("/k", "one")

	b.click(`button("Delete")`)
	b.click(`button("Delete it, really")`)
	b.eventually(`text("#said") === "It is deleted." && text("#detail").includes("It is not in the map.") && !key("/k")`)
	value("/k", "")

	// A new key, once.
	b.click(`button("New key")`)
	name := `all("#detail input")[0]`
	create := func(key, text string) {
		b.write(name, key)
		b.write(area, text)
		b.click(`button("Create")`)
	}
	create("no slash", "v")
	b.eventually(`text("#said") === "A key begins with a slash."`)
	create("/new/ü", "v")
	b.detail("/new/ü", "v")
	value("/new/ü", "v")
	b.click(`button("New key")`)
	create("/new/ü", "w")
	b.eventually(`text("#said") === "Nothing is changed: the key is there already."`)
	value("/new/ü", "v")

	// What is saved expires as it would have.
	program.Must(t, "set", "--server", s.endpoint, "--ttl", "1h", "/ttl", "v")
	b.click(`key("/ttl")`)
	b.detail("/ttl", "v")
	b.write(area, "w")
	b.click(`button("Save")`)
	b.eventually(`text("#said") === "It is saved." && text("#detail dl").includes("Expires")`)
	value("/ttl", "w")
	if entry := commandtest.Object(t, program.Must(t, "get", "--json", "--server", s.endpoint, "/ttl")); entry["ttl"] == nil || entry["ttl"].(float64) > 3600 {
		t.Errorf("it is %v", entry)
	}
}

// A visitor sees and is offered what the token allows, and the server refuses the rest.
func TestVisitorsHaveTheRightsOfTheirTokens(t *testing.T) {
	t.Parallel()
	reader, readerHash := access.NewToken()
	writer, writerHash := access.NewToken()
	hash, err := access.HashPassword("secret")
	testenv.Must(t, err)
	file := filepath.Join(t.TempDir(), "access.toml")
	testenv.Must(t, os.WriteFile(file, []byte(`
[users]
reader.token = ["`+readerHash+`"]
writer.token = ["`+writerHash+`"]
all.plain = "`+hash+`"
[[rules]]
who = ["reader"]
read = ["/a/"]
[[rules]]
who = ["writer"]
read = [""]
write = ["/a/"]
[[rules]]
who = ["all"]
read = [""]
write = [""]
`), 0o600))
	s := serve(t, "--plain", "--access", file, "--http-write")
	c := s.client(sockets.Security{PlainUsername: "all", PlainPassword: "secret"})
	s.set(c, "/a/1", "v", "/b/1", "w")
	visit := func(token, hash string) *tab {
		b := open(t, s.url+hash)
		b.provokes(`status of 401 `) // before it has the token
		b.eventually(`text("#keys-note").startsWith("The request does not prove who makes it") && all("#tree .key").length === 0`)
		b.write(`all("#token")[0]`, token)
		b.run(`document.getElementById("token").blur()`)
		return b
	}
	b := visit(writer, "#keys/a/1")
	b.detail("/a/1", "v")
	b.eventually(`button("Save") && button("Delete")`)
	b.click(`key("/b/1")`)
	b.detail("/b/1", "w")
	b.eventually(`text("#value") === "w"`)
	b.readOnly()
	b.write(`document.getElementById("prefix")`, "/a/")
	b.click(`button("Open")`)
	b.eventually(`button("New key") && key("/a/1") && !key("/b/1")`)

	b = visit(reader, "#keys")
	b.provokes(`status of 403 `)
	b.eventually(`text("#keys-note").startsWith("Who asks may not do that")`)
	b.write(`document.getElementById("prefix")`, "/a/")
	b.click(`button("Open")`)
	b.click(`key("/a/1")`)
	b.detail("/a/1", "v")
	b.readOnly()
	for _, path := range []string{"v1/kv/a/1", "v1/kv/b/1"} {
		if code, body := s.ask(http.MethodPut, path, "x", reader); code != 403 || !strings.Contains(body, "urn:clustermap:problem:forbidden") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if b.is(`document.documentElement.innerHTML.includes(` + quote(reader) + `) || location.href.includes(` + quote(reader) + `)`) {
		t.Error("the token is in the page")
	}
}

// An address leads to a key, also to one that is not there, and in a page that is open.
func TestAddressesLeadToKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(sockets.Security{})
	for i := range 50 {
		s.set(c, fmt.Sprintf("/deep/er/%02d", i), "v")
	}
	b := open(t, s.url+"#keys/deep/er/49")
	b.detail("/deep/er/49", "v")
	b.eventually(`key("/deep/er/49").getAttribute("aria-selected") === "true"`)
	b.run(`location.hash = "#keys/deep/er/07"`)
	b.detail("/deep/er/07", "v")
	b.run(`location.hash = "#keys/missing"`)
	b.eventually(`text("#detail h2") === "/missing" && text("#detail").includes("It is not in the map.")`)
	s.set(c, "/missing", "no more")
	b.detail("/missing", "no more")
	b.run(`location.hash = "#keys/%"`)
	b.eventually(`all("#keys").length === 1 && text("#detail h2") === "/missing"`)
	b.write(`document.getElementById("prefix")`, "/other/")
	b.click(`button("Open")`)
	b.eventually(`text("#keys-note") === "0 keys, as they change" && text("#tree") === "No keys."`)
	b.run(`location.hash = "#keys/deep/er/08"`)
	b.detail("/deep/er/08", "v")
}
