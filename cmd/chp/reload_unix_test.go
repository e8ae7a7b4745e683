//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/interop"
	"clustermap/internal/loopback"
	"clustermap/internal/testenv"
	"clustermap/sockets"
	"clustermap/zmtp"
)

// replace replaces a file by one with the texts of others.
func replace(t *testing.T, name string, by ...string) {
	t.Helper()
	var text []byte
	for _, one := range by {
		b, err := os.ReadFile(one)
		testenv.Must(t, err)
		text = append(text, b...)
	}
	replaceText(t, name, string(text))
}

// replaceText replaces a file by one with a text.
func replaceText(t *testing.T, name, text string) {
	t.Helper()
	testenv.Must(t, errors.Join(os.WriteFile(name+".new", []byte(text), 0o600), os.Rename(name+".new", name)))
}

// keyPair reads a key file.
func keyPair(t *testing.T, file string) zmtp.KeyPair {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.Must(t, err)
	pair, err := zmtp.ParseKeyFile(text)
	testenv.Must(t, err)
	return pair
}

// A server alone, and a pair, get another key while a client writes and another one follows, both of which know the new one from the
// beginning: every acknowledged update is in the map, and has been seen, although all connections begin anew after each step.
func TestServerKeyRotatesUnderLoad(t *testing.T) {
	t.Parallel()
	for _, pair := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "pair"}[pair], func(t *testing.T) {
			t.Parallel()
			ctx, dir := testenv.Context(t), t.TempDir()
			oldFile, oldKey := keygen(t, "old")
			newFile, newKey := keygen(t, "new")
			clientFile, clientKey := keygen(t, "client")
			adminFile, adminKey := keygen(t, "admin")
			serverFile, allow := filepath.Join(dir, "server.key"), filepath.Join(dir, "clients")
			replace(t, serverFile, oldFile)
			replaceText(t, allow, clientKey+" load\n")
			args := []string{"--curve-key", serverFile, "--curve-allow", allow, "--curve-admin", adminKey}
			var servers []*server
			if pair {
				host := loopback.Own()
				for _, role := range []string{"--primary", "--backup"} {
					p := start(t, append([]string{"serve", role, "--host", host, "--bstar-interval", "1s"}, args...)...)
					servers = append(servers, &server{process: p, endpoint: p.ready()})
				}
			} else {
				servers = append(servers, serveApart(t, args...))
			}
			o := chp.ClientOptions{Security: sockets.Security{
				CurveSecretKey: keyPair(t, clientFile).Secret, CurveServerKey: keyPair(t, oldFile).Public, CurveMoreServerKeys: []zmtp.PublicKey{keyPair(t, newFile).Public},
			}}
			as := []string{"--curve-key", adminFile, "--curve-server-key", oldKey, "--curve-server-key", newKey, "--timeout", "1m"}
			for _, s := range servers {
				o.Servers = append(o.Servers, s.endpoint)
				as = append(as, "--server", s.endpoint)
			}
			connect := func() *chp.Client {
				c, err := chp.NewClient(o)
				testenv.Must(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			replica, publisher := connect(), connect()
			watch, err := replica.Watch()
			testenv.Must(t, err)
			stop, acked := make(chan struct{}), 0
			var done atomic.Int64
			var running sync.WaitGroup
			running.Go(func() {
				for ; ; acked++ {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := publisher.SetSync(ctx, fmt.Sprint("/load/", acked), []byte("v")); err != nil {
						t.Errorf("update %d: %v", acked, err)
						return
					}
					done.Add(1)
				}
			})
			more := func() {
				t.Helper()
				began := done.Load()
				testenv.Eventually(t, "more updates", func() bool { return done.Load() > began+5 })
			}
			more()
			for i, step := range [][]string{{oldFile, newFile}, {newFile, oldFile}, {newFile}} {
				replace(t, serverFile, step...)
				shown := map[string]string{oldFile: oldKey, newFile: newKey}[step[0]]
				for _, s := range servers {
					s.signal(syscall.SIGHUP)
					s.Await(`read .*server.key again: ` + command.Count(len(step), "key") + `, of which clients are shown ` + regexp.QuoteMeta(shown) + `\n`)
				}
				more()
				must(t, append([]string{"kick", "load"}, as...)...)
				more()
				for _, key := range []string{oldKey, newKey} {
					file := map[string]string{oldKey: oldFile, newKey: newFile}[key]
					o := try(t, "status", "--server", servers[0].endpoint, "--curve-key", adminFile, "--curve-server-key", key)
					if want := slices.Contains(step, file); (o.code == exitDone) != want {
						t.Errorf("step %d, with %s: exit code %d, %s", i, filepath.Base(file), o.code, o.stderr)
					}
				}
			}
			if pair { // the servers follow each other by the new key, too
				must(t, append([]string{"failover"}, as...)...)
				more()
			}
			close(stop)
			running.Wait()
			want := map[string]bool{}
			for n := range acked {
				want[fmt.Sprint("/load/", n)] = true
			}
			last, err := publisher.SetSync(ctx, "/last", []byte("v"))
			testenv.Must(t, err)
			seen := map[string]bool{}
			for at := int64(0); at < last; {
				e, err := watch.Next(ctx)
				testenv.Must(t, err)
				at, seen[string(e.Key)] = e.Sequence, true
			}
			for key := range want {
				if _, ok := replica.Get(key); !ok || !seen[key] {
					t.Errorf("%s: in the replica %v, seen %v", key, ok, seen[key])
				}
			}
		})
	}
}

// A server reads its files again at SIGHUP and when they have changed: one with a mistake changes nothing, and others are read all the
// same. A client whose key is no longer accepted is disconnected.
func TestServerReadsItsFilesAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serverFile, serverKey := keygen(t, "server")
	_, aliceKey := keygen(t, "alice")
	bobFile, bobKey := keygen(t, "bob")
	adminFile, adminKey := keygen(t, "admin")
	allow, admins, level := filepath.Join(dir, "clients"), filepath.Join(dir, "admins"), filepath.Join(dir, "level")
	replaceText(t, allow, aliceKey+" alice\n"+bobKey+" bob\n")
	replaceText(t, admins, aliceKey+"\n")
	replaceText(t, level, "warn\n")
	s := serve(t, "--curve-key", serverFile, "--curve-allow", allow, "--curve-admin", admins, "--log-level", level, "--watch-config")
	status := func() outcome {
		return try(t, "clients", "--server", s.endpoint, "--curve-key", adminFile, "--curve-server-key", serverKey)
	}
	status().expect(t, exitRefused, "")
	replaceText(t, admins, adminKey+"\n")
	s.Await(`read .*admins again: 1 key\n`)
	start(t, "watch", "--server", s.endpoint, "--curve-key", bobFile, "--curve-server-key", serverKey)
	testenv.Eventually(t, "bob", func() bool { return strings.Contains(status().out, "bob") })
	replaceText(t, level, "loud\n")
	s.Await(`the level stays as it was: --log-level: "loud" is none of debug, info, warn and error\n`)
	replaceText(t, level, "info")
	s.Await(`read .*level again: info\n`)
	replaceText(t, allow, "x\n")
	s.Await(`the accepted keys stay as they were: .*line 1.*\n`)
	replaceText(t, serverFile, "x\n")
	s.Await(`the server's keys stay as they were: --curve-key: .* is not a key file of chp keygen\n`)
	replaceText(t, allow, aliceKey+" alice\n")
	s.Await(`read .*clients again: 1 key\n`)
	s.Await(`disconnects a client whose rights have changed.*user=bob`)
	testenv.Eventually(t, "bob is gone", func() bool { o := status(); return o.code == exitDone && !strings.Contains(o.out, "bob") })
}

// The certificate of --http, those who certify its clients, and its tokens are read again; what a client of one that is gone has begun
// ends, over the connection that there is.
func TestDoorReadsItsFilesAgain(t *testing.T) {
	t.Parallel()
	ca, _, caCert, caKey := certified(t, "authority", nil, nil)
	cert, key, _, _ := certified(t, "server", caCert, caKey)
	next, nextKey, _, _ := certified(t, "next", caCert, caKey)
	mine, mineKey, _, _ := certified(t, "client", caCert, caKey)
	otherCA, _, otherCert, otherKey := certified(t, "other authority", nil, nil)
	other, otherFile, _, _ := certified(t, "other client", otherCert, otherKey)
	dir := t.TempDir()
	tokens, clients := filepath.Join(dir, "tokens"), filepath.Join(dir, "ca")
	replaceText(t, tokens, "a-token-of-the-test\n")
	replace(t, clients, ca)
	s := serve(t, "--http", "127.0.0.1:0", "--http-tls-cert", cert, "--http-tls-key", key, "--http-client-ca", clients, "--http-token-file", tokens)
	ask := func(format string, args ...string) string {
		return curl(t, append([]string{"--cacert", ca, "--output", os.DevNull, "--write-out", format}, args...)...)
	}
	url := s.web() + "/v1/kv?prefix"
	code := func(want string, args ...string) {
		t.Helper()
		if got := ask("%{http_code}", append(args, url)...); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	code("200", "--cert", mine, "--key", mineKey)
	code("200", "-H", "Authorization: Bearer a-token-of-the-test")
	stream := exec.Command(interop.Program(t, "curl"), "--silent", "--no-buffer", "--max-time", "60", "--cacert", ca, "--cert", mine, "--key", mineKey, s.web()+"/v1/watch")
	out, err := stream.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, stream.Start())
	begun := bufio.NewScanner(out)
	for begun.Scan() && begun.Text() != "event: synced" {
	}
	replace(t, cert, next)
	s.signal(syscall.SIGHUP)
	s.Await(`the certificates stay as they were: --http-tls-cert: .*\n`) // the key is another one's
	code("200", "--cert", mine, "--key", mineKey)
	replace(t, key, nextKey)
	replace(t, clients, otherCA)
	replaceText(t, tokens, "b-token-of-the-test\n")
	s.signal(syscall.SIGHUP)
	s.Await(`read .* again: the certificate is valid until .*Z\n`)
	s.Await(`read .*tokens again: 1 token\n`)
	code("401")
	code("401", "-H", "Authorization: Bearer a-token-of-the-test")
	code("200", "-H", "Authorization: Bearer b-token-of-the-test")
	code("200", "--cert", other, "--key", otherFile)
	if got := curl(t, "--cacert", ca, "--output", os.DevNull, "--write-out", "%{certs}", url); got != "" && !strings.Contains(got, "next") {
		t.Errorf("it shows %s", got)
	}
	for begun.Scan() {
	}
	if err := stream.Wait(); err != nil && stream.ProcessState.ExitCode() == 28 {
		t.Error("the stream goes on")
	}
}
