//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clustermap/chp/access"
	"clustermap/internal/interop"
	"clustermap/internal/testenv"
)

// A server with a file of rights gives each client what the file says, by CURVE; chp whoami, chp access and chp reload
// say and change that.
func TestServeAccess(t *testing.T) {
	t.Parallel()
	serverFile, serverKey := keygen(t, "server")
	annaFile, anna := keygen(t, "anna")
	rootFile, root := keygen(t, "root")
	file := filepath.Join(t.TempDir(), "access.toml")
	rules := "[users.anna]\ncurve = ['" + anna + "']\n[users.root]\ncurve = ['" + root + "']\n" +
		"[[rules]]\nwho = ['root']\nread = ['']\nwrite = ['']\nadmin = true\n" +
		"[[rules]]\nwho = ['anna']\nread = ['/a/']\nwrite = ['/a/']\n"
	rewrite := func(text string) { testenv.Must(t, os.WriteFile(file, []byte(text), 0o600)) }
	rewrite(rules)
	audit := filepath.Join(t.TempDir(), "audit")
	s := serve(t, "--curve-key", serverFile, "--access", file, "--stamp", "--audit", audit, "--audit-writes")
	as := func(key string, args ...string) []string {
		return append(args, "--server", s.endpoint, "--curve-key", key, "--curve-server-key", serverKey)
	}
	must(t, as(rootFile, "set", "/b/1", "secret")...)
	must(t, as(annaFile, "set", "/a/1", "v")...)
	if got := must(t, as(annaFile, "get", "/a/1", "--json")...); !strings.Contains(got, `"by":"anna"`) {
		t.Errorf("got %s", got)
	}
	for _, args := range [][]string{{"get", "/b/1"}, {"set", "/b/1", "x"}, {"ls"}, {"dump"}, {"history", "/b/1"}, {"del", "/b/1"}, {"set", "/ab/1", "x"}} {
		o := try(t, as(annaFile, args...)...)
		o.expect(t, exitRefused, "access denied")
	}
	try(t, as(annaFile, "status")...).expect(t, exitRefused, `"anna" is not an administrator`)
	try(t, as(annaFile, "reload")...).expect(t, exitRefused, `"anna" is not an administrator`)
	must(t, as(rootFile, "status")...)
	want := "name   anna\nkey    " + anna + "\nread   /a/\nwrite  /a/\nadmin  no\n"
	if got := must(t, as(annaFile, "whoami")...); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := must(t, as(rootFile, "whoami", "--json")...); !strings.Contains(got, `"name":"root"`) || !strings.Contains(got, `"read":[""]`) {
		t.Errorf("got %s", got)
	}

	rewrite(strings.ReplaceAll(rules, "'/a/'", "'/b/'"))
	must(t, as(rootFile, "reload")...)
	if got := must(t, as(annaFile, "get", "/b/1")...); got != "secret\n" {
		t.Errorf("got %q", got)
	}
	try(t, as(annaFile, "get", "/a/1")...).expect(t, exitRefused, "access denied")
	rewrite("[")
	try(t, as(rootFile, "reload")...).expect(t, exitRefused, "goes on with what it had")
	must(t, as(annaFile, "get", "/b/1")...)
	s.Await(`the rights stay as they were: --access: .*line 1.*\n`)
	rewrite(rules)
	s.signal(syscall.SIGHUP)
	s.Await(`read .*access.toml again: 2 users\n`)
	testenv.Eventually(t, "the rights are back", func() bool { return try(t, as(annaFile, "get", "/a/1")...).code == 0 })

	stranger, _ := keygen(t, "stranger")
	try(t, as(stranger, "get", "/a/1")...).expect(t, exitRefused, "does not accept this key")
	testenv.Must(t, os.Rename(audit, audit+".1"))
	must(t, as(rootFile, "reload")...)
	must(t, as(annaFile, "set", "/a/1", "longer")...)
	s.signal(syscall.SIGTERM)
	s.wait()
	before, err := os.ReadFile(audit + ".1")
	testenv.Must(t, err)
	after, err := os.ReadFile(audit)
	testenv.Must(t, err)
	for _, want := range []string{`"msg":"client connected","port":"publisher"`, `"user":"anna"`, `"msg":"client denied"`, `"msg":"request refused"`, `"msg":"rights changed"`,
		`"msg":"reads its files again at the request of a client"`, `"msg":"write","key":"/b/1","sequence":`, `"op":"set","by":"root","before":0,"after":6}`, `"by":"anna"`} {
		if !strings.Contains(string(before)+string(after), want) {
			t.Errorf("%s is not in the audit log:\n%s", want, before)
		}
	}
	if want := `"op":"set","by":"anna","before":1,"after":6}`; !strings.Contains(string(after), want) {
		t.Errorf("%s is not in the audit log:\n%s", want, after)
	}
	if strings.Contains(string(before), "secret") {
		t.Error("a value is in the audit log")
	}
}

// With --plain clients have names and passwords, and with --watch-config a change of the file is enough.
func TestServePlain(t *testing.T) {
	t.Parallel()
	hash := strings.TrimSpace(mustInput(t, "secret\n", "access", "hash"))
	file := filepath.Join(t.TempDir(), "access.toml")
	rules := "[users.anna]\nplain = '" + hash + "'\n[[rules]]\nwho = ['anna']\nread = ['']\nwrite = ['']\n"
	testenv.Must(t, os.WriteFile(file, []byte(rules), 0o600))
	s := serve(t, "--plain", "--access", file, "--watch-config")
	as := func(password string, args ...string) outcome {
		cmd := program(t, append(args, "--server", s.endpoint, "--user", "anna")...)
		cmd.Env = append(cmd.Env, passwordVariable+"="+password)
		return runCommand(t, cmd)
	}
	as("secret", "set", "/a", "v").expect(t, 0, "")
	as("wrong", "set", "/a", "v").expect(t, exitRefused, "does not accept this name and password")
	try(t, "get", "/a", "--server", s.endpoint).expect(t, exitRefused, "")
	testenv.Must(t, os.WriteFile(file, []byte(strings.Replace(rules, "write = ['']", "", 1)), 0o600))
	s.Await(`again: 1 user\n`)
	as("secret", "set", "/a", "w").expect(t, exitRefused, "access denied")
	as("secret", "get", "/a").expect(t, 0, "")
}

// Flags that do not go together, and files with mistakes, are usage errors.
func TestAccessUsage(t *testing.T) {
	t.Parallel()
	serverFile, _ := keygen(t, "server")
	file := filepath.Join(t.TempDir(), "access.toml")
	testenv.Must(t, os.WriteFile(file, []byte("[users.a]\ngroups=['g']\n[[rules]]\nwho=['@g']\nread=['/a/']\nwrite=['/a/b']\n[[limits]]\nwho=['*']\nupdates=1000\nbytes=1048576\n"), 0o600))
	broken := filepath.Join(t.TempDir(), "broken.toml")
	testenv.Must(t, os.WriteFile(broken, []byte("[users.a]\nnothing=1\n"), 0o600))
	for _, test := range []struct {
		want string
		args []string
	}{
		{"--plain needs --access", []string{"serve", "--port", "0", "--plain"}},
		{"--watch-config needs a file to watch", []string{"serve", "--port", "0", "--watch-config"}},
		{"exclude each other", []string{"serve", "--port", "0", "--plain", "--access", file, "--curve-key", serverFile}},
		{"does not go with --access", []string{"serve", "--port", "0", "--access", file, "--curve-key", serverFile, "--curve-allow", "any"}},
		{"line 2, column 1: there is no users.a.nothing", []string{"serve", "--port", "0", "--access", broken}},
		{"no such file", []string{"serve", "--port", "0", "--access", broken + "x"}},
		{"--audit-writes needs --audit", []string{"serve", "--port", "0", "--audit-writes", "--stamp"}},
		{"--audit-writes needs --stamp", []string{"serve", "--port", "0", "--audit-writes", "--audit", file + ".log"}},
		{"not a directory", []string{"serve", "--port", "0", "--audit", file + "/log"}},
		{"--user needs the password", []string{"get", "/a", "--user", "a"}},
		{"use one of them", []string{"get", "/a", "--user", "a", "--curve-key", serverFile, "--curve-server-key", serverFile}},
		{"want read, write or admin", []string{"access", "check", "--file", file, "a", "do", "/a"}},
		{"needs a key", []string{"access", "check", "--file", file, "a", "read"}},
		{"admin has no key", []string{"access", "check", "--file", file, "a", "admin", "/a"}},
	} {
		try(t, test.args...).expect(t, exitUsage, test.want)
	}
	check := func(args ...string) []string { return append([]string{"access", "check", "--file", file}, args...) }
	if got := must(t, check()...); got != file+" is valid: 1 user\n" {
		t.Errorf("got %q", got)
	}
	if got, want := must(t, check("a")...), "name   a\nread   /a/\nwrite  /a/b\nadmin  no\nlimits 1000 updates/s, 1MiB/s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, args := range [][]string{{"a", "read", "/a/x"}, {"a", "read", "/a/"}, {"a", "write", "/a/b"}} {
		if got := must(t, check(args...)...); got != "allowed\n" {
			t.Errorf("%q: %q", args, got)
		}
	}
	for _, args := range [][]string{{"a", "read", ""}, {"a", "read", "/ab/"}, {"a", "write", "/a/c"}, {"a", "admin"}, {"anonymous", "read", "/a/"}} {
		try(t, check(args...)...).expect(t, exitRefused, "access denied")
	}
	try(t, check("b")...).expect(t, exitRefused, `no user "b"`)
	try(t, "access", "check", "--file", broken).expect(t, exitRefused, "line 2")
	lines := strings.Fields(must(t, "access", "token"))
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "chp_") || !strings.HasPrefix(lines[1], "sha256:") {
		t.Errorf("token: %q", lines)
	}
}

// Over HTTP a user of the file has a token, and may what the rules say; a token that is removed ends what it was used for.
func TestServeAccessOverHTTP(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.toml")
	token, hash := access.NewToken()
	rule := "[[rules]]\nwho = ['anna']\nread = ['/a/']\nwrite = ['/a/']\n[[rules]]\nwho = ['anonymous']\nread = ['']\nwrite = ['']\nadmin = true\n"
	rewrite := func(token string) {
		testenv.Must(t, os.WriteFile(file, []byte("[users.anna]\ntoken = ['"+token+"']\n"+rule), 0o600))
	}
	rewrite(hash)
	s := serve(t, "--access", file, "--http", "127.0.0.1:0", "--http-write")
	must(t, "set", "--server", s.endpoint, "/ab/1", "secret")
	must(t, "set", "--server", s.endpoint, "/a/1", "x") // what follows is in any order
	status := func(args ...string) string {
		return curl(t, append([]string{"--output", os.DevNull, "--write-out", "%{http_code}", "--path-as-is", "-H", "Authorization: Bearer " + token}, args...)...)
	}
	url := s.web() + "/v1"
	for args, want := range map[string]string{
		"--request PUT --data-binary x " + url + "/kv/a/1": "204", url + "/kv/a/1": "200", url + "/kv/a/?prefix": "200",
		"--request PUT --data-binary x " + url + "/kv/ab/1": "403", url + "/kv/ab/1": "403", url + "/kv/a/../ab/1": "404", url + "/kv?prefix": "403", url + "/watch": "403", url + "/watch/ab/": "403",
		"--request DELETE " + url + "/kv/ab/1": "403", "--request POST -H Content-Type:application/json --data {} " + url + "/lease": "400", url + "/lease": "403",
	} {
		if got := status(strings.Fields(args)...); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	if got := curl(t, url+"/kv/ab/1"); got != "secret" {
		t.Errorf("whoever proves nothing got %q", got)
	}
	stream := exec.Command(interop.Program(t, "curl"), "--silent", "--no-buffer", "--max-time", "60", "-H", "Authorization: Bearer "+token, url+"/watch/a/")
	out, err := stream.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, stream.Start())
	begun := bufio.NewScanner(out)
	for begun.Scan() && begun.Text() != "event: synced" {
	}
	_, other := access.NewToken()
	rewrite(other)
	must(t, "reload", "--server", s.endpoint)
	if got := status(url + "/kv/a/1"); got != "401" {
		t.Errorf("got %s", got)
	}
	for begun.Scan() {
	}
	if err := stream.Wait(); err != nil && stream.ProcessState.ExitCode() == 28 {
		t.Error("the stream goes on")
	}
}

// Where the ports want keys, a rule for everybody is none for those who come to the door without a proof.
func TestDoorOfKeysWantsProofs(t *testing.T) {
	t.Parallel()
	serverFile, _ := keygen(t, "server")
	_, annasKey := keygen(t, "anna")
	file := filepath.Join(t.TempDir(), "access.toml")
	token, hash := access.NewToken()
	testenv.Must(t, os.WriteFile(file, []byte("[users.anna]\ncurve = ['"+annasKey+"']\ntoken = ['"+hash+"']\n[[rules]]\nwho = ['*']\nread = ['']\nwrite = ['']\n"), 0o600))
	s := serve(t, "--access", file, "--curve-key", serverFile, "--http", "127.0.0.1:0", "--http-write")
	url := s.web() + "/v1"
	for _, path := range []string{"/kv/k", "/kv?prefix", "/watch"} {
		if code, body := get(t, url+path); code != 401 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	put := []string{"--output", os.DevNull, "--write-out", "%{http_code}", "--request", "PUT", "--data-binary", "x", url + "/kv/k"}
	if got := curl(t, put...); got != "401" {
		t.Errorf("without a proof: %s", got)
	}
	if got := curl(t, append(put, "-H", "Authorization: Bearer "+token)...); got != "204" {
		t.Errorf("with a token: %s", got)
	}
}

// A lease over HTTP belongs to who was granted it: others neither renew nor end it, nor attach keys, and it deletes only what its user may
// write. What is refused is counted.
func TestLeasesOverHTTPBelongToUsers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.toml")
	var tokens [3]string
	rules := ""
	for i, name := range []string{"anna", "bert", "carl"} {
		var hash string
		tokens[i], hash = access.NewToken()
		rules += "[users." + name + "]\ntoken = ['" + hash + "']\n"
	}
	rules += "[[rules]]\nwho = ['anna']\nwrite = ['/a/']\n[[rules]]\nwho = ['bert']\nread = ['']\nwrite = ['/b/']\n[[rules]]\nwho = ['carl']\nread = ['']\n[[rules]]\nwho=['anonymous']\nread=['']\nadmin=true\n"
	testenv.Must(t, os.WriteFile(file, []byte(rules), 0o600))
	s := serve(t, "--access", file, "--http", "127.0.0.1:0", "--http-write", "--stamp")
	url := s.web() + "/v1"
	as := func(who int, args ...string) []string {
		return append([]string{"-H", "Authorization: Bearer " + tokens[who], "-H", "Content-Type: application/json"}, args...)
	}
	code := func(want string, who int, args ...string) {
		t.Helper()
		if got := curl(t, append([]string{"--output", os.DevNull, "--write-out", "%{http_code}"}, as(who, args...)...)...); got != want {
			t.Errorf("%d: %s: %s, want %s", who, args, got, want)
		}
	}
	grant := func(who int) string {
		t.Helper()
		id, _ := object(t, curl(t, as(who, "--data", `{"ttl":60}`, url+"/lease")...))["id"].(string)
		return id
	}
	one, two := grant(0), grant(1)
	code("403", 2, "--data", `{"ttl":60}`, url+"/lease") // he may write nothing
	code("204", 0, "-X", "PUT", "--data-binary", "v", url+"/kv/a/1?lease="+one)
	code("403", 0, "-X", "PUT", "--data-binary", "v", url+"/kv/b/1?lease="+one)
	code("403", 0, "-X", "PUT", "--data-binary", "v", url+"/kv/a/2?lease="+two)
	code("403", 1, "-X", "PUT", "--data-binary", "v", url+"/kv/b/1?lease="+one)
	code("403", 1, "--data", `{"op":"set","key":"/b/1","value":"v","lease":"`+one+`"}`, url+"/txn")
	code("200", 1, "--data", `{"op":"set","key":"/b/1","value":"v","lease":"`+two+`"}`, url+"/txn")
	for _, method := range []string{"PUT", "DELETE"} {
		code("403", 1, "-X", method, url+"/lease/"+one)
		code("403", 2, "-X", method, url+"/lease/"+one)
	}
	code("200", 0, url+"/lease/"+one)
	code("200", 0, "-X", "PUT", url+"/lease/"+one)
	code("404", 0, "-X", "PUT", url+"/lease/"+strings.Repeat("0", 32))
	if by := object(t, must(t, "get", "--json", "--server", s.endpoint, "/a/1"))["by"]; by != "anna" {
		t.Errorf("/a/1 is by %v", by)
	}
	try(t, "lease", "revoke", one, "--server", s.endpoint).expect(t, exitRefused, "access denied")
	code("204", 0, "-X", "DELETE", url+"/lease/"+one)
	code("404", 1, url+"/kv/a/1")
	code("200", 1, url+"/kv/b/1")
	if text := curl(t, s.web()+"/metrics"); !strings.Contains(text, `chp_refused_total{reason="access_denied"} 1`) {
		t.Errorf("the refusals are not counted: %s", text)
	}
}

// A user may add so many keys, and so many bytes, over whichever port: more is refused, and counted, also after a restart. Others may add to the same
// subtree, and a deletion makes room.
func TestUsersHaveShares(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, data := filepath.Join(dir, "access.toml"), filepath.Join(dir, "data")
	hash := strings.TrimSpace(mustInput(t, "secret\n", "access", "hash"))
	token, tokenHash := access.NewToken()
	rules := "[users.anna]\nplain='" + hash + "'\ntoken=['" + tokenHash + "']\n[users.bert]\nplain='" + hash + "'\n" +
		"[[rules]]\nwho=['anna','bert']\nread=['']\nwrite=['/a/']\n[[limits]]\nwho=['anna']\nkeys=2\nmap=2000\n"
	testenv.Must(t, os.WriteFile(file, []byte(rules), 0o600))
	args := []string{"--plain", "--access", file, "--data", data, "--sync", "always", "--http", "127.0.0.1:0", "--http-write"}
	s := serveApart(t, args...)
	as := func(name string, args ...string) outcome {
		cmd := program(t, append(args, "--server", s.endpoint, "--user", name, "--timeout", "1m")...)
		cmd.Env = append(cmd.Env, passwordVariable+"=secret")
		return runCommand(t, cmd)
	}
	put := func(want, key string) {
		t.Helper()
		if got := curl(t, "--output", os.DevNull, "--write-out", "%{http_code}", "-H", "Authorization: Bearer "+token, "-X", "PUT", "--data-binary", "v", s.web()+"/v1/kv"+key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	as("anna", "set", "/a/1", "v").expect(t, 0, "")
	put("204", "/a/2")
	put("507", "/a/3")
	for range 2 {
		as("anna", "set", "/a/3", "v").expect(t, exitRefused, "client limit")
		as("anna", "set", "/a/2", strings.Repeat("v", 3000)).expect(t, exitRefused, "client limit")
		as("anna", "set", "/a/2", "w").expect(t, 0, "")
		s.terminate()
		s = serveApart(t, args...)
	}
	as("bert", "set", "/a/3", "v").expect(t, 0, "")
	as("anna", "del", "/a/2").expect(t, 0, "")
	put("507", "/a/2")
	as("anna", "del", "/a/3").expect(t, 0, "")
	put("204", "/a/2")
	if o := as("anna", "whoami"); !strings.Contains(o.out, "limits 2 keys, 2000B of the map\n") && !strings.Contains(o.out, "limits 2 keys, 2000 of the map\n") {
		t.Errorf("%q", o.out)
	}
}

// At each node of a cluster, whether it leads or not, users may what the file says and no more: keys, leases and limits.
func TestClusterAccess(t *testing.T) {
	t.Parallel()
	serverFile, serverKey := keygen(t, "server")
	annaFile, anna := keygen(t, "anna")
	bertFile, bert := keygen(t, "bert")
	token, tokenHash := access.NewToken()
	file := filepath.Join(t.TempDir(), "access.toml")
	rules := "[users.anna]\ncurve=['" + anna + "']\n[users.bert]\ncurve=['" + bert + "']\ntoken=['" + tokenHash + "']\n" +
		"[[rules]]\nwho=['anna','bert']\nread=['/a/', '/b/']\n[[rules]]\nwho=['anna']\nwrite=['/a/']\n[[rules]]\nwho=['bert']\nwrite=['/b/']\n" +
		"[[limits]]\nwho=['bert']\nkeys=4\n"
	testenv.Must(t, os.WriteFile(file, []byte(rules), 0o600))
	try(t, "serve", "--data", t.TempDir(), "--node", "1", "--cluster", "1=tcp://127.0.0.1:7000", "--access", file).expect(t, exitUsage, "needs --curve-key")
	c := startCluster(t, "--curve-key", serverFile, "--access", file, "--stamp", "--http", "127.0.0.1:0", "--http-write")
	as := func(key string, node int, args ...string) []string {
		return append(args, "--server", c.endpoints[node], "--curve-key", key, "--curve-server-key", serverKey, "--timeout", "1m")
	}
	put := func(node int, key string) string {
		return curl(t, "--output", os.DevNull, "--write-out", "%{http_code}", "-H", "Authorization: Bearer "+token, "-X", "PUT", "--data-binary", "v", c.nodes[node].web()+"/v1/kv"+key)
	}
	for i := range c.nodes {
		mine, his := fmt.Sprintf("/a/%d", i), fmt.Sprintf("/b/%d", i)
		must(t, as(annaFile, i, "set", mine, "v")...)
		must(t, as(bertFile, i, "set", his, "v")...)
		try(t, as(annaFile, i, "set", his, "v")...).expect(t, exitRefused, "access denied")
		try(t, as(annaFile, i, "set", his, "v", "--if-absent")...).expect(t, exitRefused, "access denied")
		try(t, as(annaFile, i, "get", "/c")...).expect(t, exitRefused, "access denied")
		try(t, as(annaFile, i, "cluster", "remove", "1")...).expect(t, exitRefused, "not an administrator")
		if got := must(t, as(bertFile, i, "get", mine, "--json")...); !strings.Contains(got, `"by":"anna"`) {
			t.Errorf("node %d has %s", i+1, got)
		}
		must(t, as(annaFile, i, "wait")...)
		lease := strings.TrimSpace(must(t, as(annaFile, i, "lease", "grant", "--ttl", "1h")...))
		must(t, as(annaFile, i, "set", mine, "w", "--lease", lease)...)
		for j := range c.nodes {
			for _, command := range []string{"renew", "revoke"} {
				try(t, as(bertFile, j, "lease", command, lease)...).expect(t, exitRefused, "access denied")
			}
		}
		must(t, as(annaFile, (i+1)%3, "lease", "renew", lease)...)
		must(t, as(annaFile, (i+2)%3, "lease", "revoke", lease)...)
	}
	// One more is possible, and all nodes count what others have ordered.
	if code := put(0, "/b/3"); code != "204" {
		t.Errorf("the fourth key: %s", code)
	}
	if got := must(t, as(annaFile, 1, "get", "/b/3", "--json")...); !strings.Contains(got, `"by":"bert"`) {
		t.Errorf("/b/3 is %s", got)
	}
	full := func(nodes ...int) {
		t.Helper()
		for _, i := range nodes {
			try(t, as(bertFile, i, "set", "/b/4", "v")...).expect(t, exitRefused, "client limit")
			if code := put(i, "/b/4"); code != "507" {
				t.Errorf("a fifth key at node %d: %s", i+1, code)
			}
			must(t, as(bertFile, i, "set", "/b/3", "w")...)
		}
	}
	full(0, 1, 2)
	c.kill(0) // it has ordered most, since it was there first
	full(1, 2)
}

// A server gets another key: it accepts clients that know either, shows the first, and in the end has the new one
// alone.
func TestServerKeyIsReplaced(t *testing.T) {
	t.Parallel()
	oldFile, oldKey := keygen(t, "old")
	newFile, newKey := keygen(t, "new")
	clientFile, _ := keygen(t, "client")
	data := t.TempDir()
	set := func(endpoint, key, value string) outcome {
		return try(t, "set", "/a/"+value, value, "--server", endpoint, "--curve-key", clientFile, "--curve-server-key", key)
	}
	for _, step := range []struct {
		files  []string
		shows  string
		accept map[string]bool
	}{
		{[]string{oldFile}, oldKey, map[string]bool{oldKey: true, newKey: false}},
		{[]string{oldFile, newFile}, oldKey, map[string]bool{oldKey: true, newKey: true}},
		{[]string{newFile, oldFile}, newKey, map[string]bool{oldKey: true, newKey: true}},
		{[]string{newFile}, newKey, map[string]bool{oldKey: false, newKey: true}},
	} {
		args := []string{"--curve-allow", "any", "--data", data}
		for _, f := range step.files {
			args = append(args, "--curve-key", f)
		}
		s := serve(t, args...)
		if !strings.Contains(s.stderr.String(), "'"+step.shows+"'") {
			t.Errorf("%s is not shown: %s", step.shows, s.stderr.String())
		}
		for key, want := range step.accept {
			if o := set(s.endpoint, key, "x"); (o.code == 0) != want {
				t.Errorf("%d keys, with %s: %d, %s", len(step.files), key, o.code, o.stderr)
			}
		}
		s.signal(syscall.SIGTERM)
		s.wait()
	}
}
