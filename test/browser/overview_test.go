package browser

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clustermap/chp/access"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The rate, the curve and the number of keys are those of now, and the page is not loaded again for that.
func TestRatesMoveWhileUpdatesFlow(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(sockets.Security{})
	b := open(t, s.url)
	b.eventually(`figure("Updates a second") === 0 && figure("Keys") === 0 && text("#state") === "active"`)
	b.eventually(`text("#endpoint") === ` + quote(s.endpoint) + ` && document.title === ` + quote(withoutScheme(s.endpoint)+" · clustermap"))
	stop := writing(t, c, "/rate", []byte("v"))
	b.eventually(`figure("Updates a second") > 1 && figure("Keys") === 1 && figure("Clients") === 1`)
	b.eventually(`all("#chart .curve").length === 1 && /^at most [1-9]/.test(text("#chart-most"))`)
	stop()
	b.eventually(`figure("Updates a second") === 0`)
}

// The table of clients has their names, addresses, subtrees and what waits for them.
func TestClientsAreShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hash, err := access.HashPassword("secret of anna")
	testenv.Must(t, err)
	file := filepath.Join(dir, "access.toml")
	testenv.Must(t, os.WriteFile(file, []byte("[users.anna]\nplain = '"+hash+"'\n[[rules]]\nwho = ['anna']\nread = ['']\nwrite = ['']\n"), 0o600))
	s := serve(t, "--plain", "--access", file)
	anna := sockets.Security{PlainUsername: "anna", PlainPassword: "secret of anna"}
	hostile := "/<img src=x onerror=alert(1)>/"
	s.client(anna, "/config/", hostile)
	writer := s.client(anna)
	b := open(t, s.url+"#clients")
	// One row is of the client that has two subtrees, and all of what it says is text.
	b.eventually(`rows("clients-table").some(r => r[0] === "anna" && /^127\.0\.0\.1:\d+$/.test(r[1]) && r[2] === ` + quote(hostile+" /config/") + ` && r[3] === "0" && r[4] === "0 bytes")`)
	if b.is(`document.querySelector("#clients img")`) {
		t.Error("a subtree is HTML")
	}
	b.eventually(`rows("clients-table").filter(r => r[0] === "anna" && r[2] === "everything").length === 1 && text("#clients-note").startsWith("2 clients")`)

	// A client that has stopped falls behind, and catches up later.
	watch := program.Command(t, "watch", "--server", s.endpoint, "--user", "anna", "/slow/")
	watch.Env = append(watch.Env, "CHP_PASSWORD=secret of anna")
	slow := program.StartCommand(t, watch)
	go io.Copy(io.Discard, slow.Stdout)
	row := `rows("clients-table").find(r => r[2] === "/slow/")`
	b.eventually(row)
	slow.Signal(syscall.SIGSTOP)
	value := bytes.Repeat([]byte("v"), 64<<10)
	for range 400 { // more than the system takes, and less than what the server would give it up for
		testenv.Must(t, writer.Set(testenv.Context(t), "/slow/k", value))
	}
	b.eventually(`Number(` + row + `?.[3].replaceAll(",", "")) > 10 && / (KiB|MiB)$/.test(` + row + `[4])`)
	b.picture("clients-behind")
	slow.Signal(syscall.SIGCONT)
	b.eventually(row + `?.[3] === "0"`)
	writing(t, writer, "/slow/k", []byte("v"))
	b.eventually(`rows("clients-table").some(r => r[6] !== "")`) // a rate of what came
}

// The page of each server of a pair shows both, and says so when the other one is gone and when this one takes over.
func TestServersOfAPair(t *testing.T) {
	t.Parallel()
	host := loopback.Own()
	pair := func(role string) *server {
		return serveAs(t, role, "--host", host, "--http", host+":0", "--bstar-interval", "1s", "--heartbeat", "100ms")
	}
	primary, backup := pair("--primary"), pair("--backup")
	set := []string{"set", "--server", primary.endpoint, "--server", backup.endpoint, "--timeout", "2m"}
	program.Must(t, append(set, "/k", "v")...)
	b, other := open(t, primary.url), open(t, backup.url)
	b.eventually(`(r => r.length === 2 && r[0][0] === ` + quote(primary.endpoint) + ` && r[0][1] === "active" && Number(r[0][2]) > 0 && r[1][0] === ` + quote(backup.endpoint) + ` && r[1][1] === "follows" && r[1][4] === "0" && r[1][5] === "in sync")(rows("servers"))`)
	other.eventually(`text("#state") === "passive" && rows("servers")[0][1] === "passive" && rows("servers")[1][1] === "the other server"`)
	term := get[int](other, `Number(rows("servers")[0][2])`)

	b.provokes("ERR_CONNECTION|ERR_EMPTY_RESPONSE")
	primary.Signal(syscall.SIGKILL)
	b.eventually(`text("#state") === "unreachable" && text("#trouble").startsWith("The server cannot be asked")`)
	program.Must(t, append(set, "/k", "w")...)
	other.eventually(fmt.Sprintf(`text("#state") === "active" && (r => Number(r[0][2]) > %d && r[1][1] === "does not follow")(rows("servers"))`, term))
	other.eventually(`figure("Keys") === 1`)
}

// The page of a node shows the others, and who leads; that of the leader how far they are, and who does not answer.
func TestNodesOfACluster(t *testing.T) {
	t.Parallel()
	var endpoints [3]string
	var all []string
	for i := range endpoints {
		endpoints[i] = "tcp://" + loopback.Own() + ":5556"
		all = append(all, fmt.Sprintf("%d=%s", i+1, endpoints[i]))
	}
	set := []string{"set", "--timeout", "2m", "/k", "v"}
	var nodes [3]*server
	var tabs [3]*tab
	for i, e := range endpoints {
		nodes[i] = serveAs(t, "--http", "127.0.0.1:0", "--data", t.TempDir(), "--node", fmt.Sprint(i+1), "--cluster", strings.Join(all, ","))
		set = append(set, "--server", e)
	}
	program.Must(t, set...)
	leader := -1
	for i, n := range nodes {
		tabs[i] = open(t, n.url)
		tabs[i].eventually(`rows("servers").length === 3 && rows("servers").filter(r => r[1] === "leader" && Number(r[2]) > 0).length === 1`)
		if tabs[i].is(`rows("servers")[0][1] === "leader"`) {
			leader = i
		}
	}
	if leader < 0 {
		t.Fatal("no page says that its node leads")
	}
	one, other := (leader+1)%3, (leader+2)%3
	tabs[leader].eventually(`rows("servers").slice(1).every(r => r[4] === "0" && r[5] === "")`)
	tabs[one].eventually(`rows("servers")[0][1] === "follower" && rows("servers").some(r => r[0] === ` + quote(endpoints[leader]) + ` && r[1] === "leader" && r[4] === "")`)
	nodes[other].Signal(syscall.SIGKILL)
	nodes[other].Wait()
	tabs[other].provokes("ERR_CONNECTION|ERR_EMPTY_RESPONSE")
	tabs[leader].eventually(`rows("servers").some(r => r[0] === ` + quote(endpoints[other]) + ` && r[5] === "does not answer")`)
}

// A page that was open while the server restarted goes on: figures, keys as they change, and the changes.
func TestPageComesBackWithTheServer(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	args := []string{"--port", "0", "--http", fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)), "--data", data, "--sync", "always"}
	s := serveAs(t, args...)
	s.set(s.client(sockets.Security{}), "/a/1", "before")
	b, changes := open(t, s.url+"#keys/a/1"), open(t, s.url+"#changes")
	b.eventually(`text("#value") === "before"`)
	changes.eventually(`rows("log").length === 1 && text("#state") === "active"`)
	for _, b := range []*tab{b, changes} {
		b.provokes("ERR_CONNECTION|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_SOCKET_NOT_CONNECTED")
		// While it reads its log, a server is there, and not ready.
		b.provokes(`status of 503 `)
		// The server before remembers what the next one does not.
		b.provokes(`status of 410 `)
	}
	s.Signal(syscall.SIGKILL)
	s.Wait()
	b.eventually(`text("#state") === "unreachable" && text("#keys-note").includes("again in a moment")`)
	b.picture("unreachable")
	changes.eventually(`text("#state") === "unreachable"`)
	s = serveAs(t, args...)
	b.eventually(`text("#state") === "active" && text("#trouble") === "" && text("#value") === "before" && text("#keys-note") === "1 key, as they change"`)
	c := s.client(sockets.Security{})
	s.set(c, "/a/1", "after", "/a/2", "new")
	b.eventually(`text("#value") === "after" && key("/a/2")`)
	// Changes are followed from a moment on: the next one is seen, whichever that is.
	stop := writing(t, c, "/b", []byte("v"))
	changes.eventually(`rows("log").some(r => r[1] === "set" && r[2] === "/b" && r[3] === "v")`)
	stop()
}

// The changes are those of the whole map, the newest first, until somebody pauses them.
func TestChangesAreShown(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(sockets.Security{})
	s.set(c, "/k", "v")
	b := open(t, s.url)
	b.eventually(`figure("Keys") === 1`)
	b.do(chromedp.Click(`nav button[data-view="changes"]`))
	stop := writing(t, c, "/begin", []byte("v"))
	b.eventually(`rows("log").some(r => r[2] === "/begin")`)
	stop()
	s.set(c, "/<b>hostile</b>\x1b[2J", "<script>throw 1</script>")
	testenv.Must(t, c.Delete(testenv.Context(t), "/k"))
	b.eventually(`(r => r[0][1] === "deleted" && r[0][2] === "/k" && r[1][1] === "set" && r[1][2] === "/<b>hostile</b>\\u001b[2J" && r[1][3] === "<script>throw 1</script>" && r[0][4] > r[1][4])(rows("log"))`)
	b.click(`document.getElementById("pause")`)
	seen := get[int](b, `parseInt(text("#changes-note"))`)
	s.set(c, "/paused", "v")
	b.eventually(fmt.Sprintf(`parseInt(text("#changes-note")) === %d && rows("log")[0][2] === "/k"`, seen+1))
	b.click(`document.getElementById("pause")`)
	s.set(c, "/shown", "v")
	b.eventually(`rows("log")[0][2] === "/shown" && rows("log")[1][2] === "/k"`)
}

// Views are chosen by keys as well, and an address leads to each.
func TestViewsHaveAddressesAndKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := open(t, s.url+"#nowhere")
	b.eventually(`all("#overview").length === 1 && location.hash === "#overview"`)
	b.run(`document.querySelector("nav button").focus()`)
	for _, view := range []string{"clients", "keys", "changes", "overview", "clients"} {
		b.do(chromedp.KeyEvent(kb.ArrowRight))
		b.eventually(fmt.Sprintf(`all("main > section").length === 1 && all("#%[1]s").length === 1 && location.hash === "#%[1]s" && document.activeElement.getAttribute("aria-selected") === "true"`, view))
	}
	b.do(chromedp.KeyEvent(kb.ArrowLeft))
	b.eventually(`all("#overview").length === 1`)
	b.run(`location.hash = "#changes"`)
	b.eventually(`all("#changes").length === 1`)
}

// Where the map cannot be read over HTTP, the page has the other views.
func TestPageWithoutTheMap(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "server")
	program.Must(t, "keygen", "--out", key)
	s := serve(t, "--curve-key", key, "--curve-allow", "any")
	b := open(t, s.url+"#keys/a")
	b.eventually(`all("nav button").map(b => b.textContent).join() === "Overview,Clients" && all("#overview").length === 1 && text("#state") === "active"`)
	if strings.Contains(b.report(), "Choose a key") {
		t.Error("there are keys")
	}
}

// Whatever came into the page could run no script, load nothing from elsewhere, and tell nobody.
func TestPolicyForbidsTheRest(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := open(t, s.url)
	b.provokes("Content Security Policy|^error \"policy: |it asks for (http://127.0.0.1:1/|data:image/png)|ERR_BLOCKED_BY_CSP") // the browser's own picture of a frame that is refused
	b.eventually(`text("#state") === "active"`)
	b.run(`window.refused = []; addEventListener("securitypolicyviolation", e => refused.push(e.effectiveDirective));
		document.body.insertAdjacentHTML("beforeend", "<img src=http://127.0.0.1:1/img onerror='window.hacked = 1'><p style='color: red'><iframe src=http://127.0.0.1:1/frame></iframe><form action=http://127.0.0.1:1/form></form>");
		document.body.append(Object.assign(document.createElement("script"), {textContent: "window.hacked = 1"}), Object.assign(document.createElement("script"), {src: "http://127.0.0.1:1/script"}));
		fetch("http://127.0.0.1:1/fetch").catch(() => 0);
		document.forms[document.forms.length - 1].submit()`)
	b.eventually(`["connect-src", "form-action", "frame-src", "img-src", "script-src-attr", "script-src-elem", "style-src-attr"].every(d => refused.includes(d))`)
	if b.is("window.hacked") {
		t.Error("a script ran")
	}
}
