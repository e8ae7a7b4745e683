package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermap/chp"
	"clustermap/internal/interop"
	"clustermap/sockets"
)

func TestMapByCurl(t *testing.T) {
	t.Parallel()
	s := serve(t, "--http", "127.0.0.1:0", "--http-write")
	url := s.web() + "/v1"
	status := []string{"--output", os.DevNull, "--write-out", "%{http_code} %header{etag}"}
	ask := func(args ...string) string { return curl(t, append(status, args...)...) }
	code, tag, _ := strings.Cut(ask("--request", "PUT", "--data-binary", "on", url+"/kv/lamp/1"), " ")
	if code != "204" || must(t, "get", "--server", s.endpoint, "/lamp/1") != "on\n" {
		t.Errorf("%s %s", code, tag)
	}
	if got := curl(t, url+"/kv/lamp/1"); got != "on" {
		t.Errorf("got %q", got)
	}
	if got := ask("--request", "PUT", "--data-binary", "off", "-H", "If-None-Match: *", url+"/kv/lamp/1"); got != "412 "+tag {
		t.Errorf("got %q, want 412 %s", got, tag)
	}
	if got := ask("--upload-file", "door.go", "-H", "If-Match: "+tag, url+"/kv/lamp/2"); !strings.HasPrefix(got, "412") {
		t.Errorf("got %q", got)
	}
	if got := ask("--upload-file", "door.go", url+"/kv/file"); !strings.HasPrefix(got, "204") {
		t.Errorf("got %q", got)
	}
	must(t, "set", "--server", s.endpoint, "/lamp/2", "off")
	if got := curl(t, url+"/kv/lamp/?prefix"); strings.Count(got, "\n") != 2 || !strings.Contains(got, `{"key":"/lamp/2","value":"off","seq":"`) {
		t.Errorf("got %q", got)
	}
	// What the door prints, chp load reads.
	other := serve(t)
	file := filepath.Join(t.TempDir(), "map.jsonl")
	if err := os.WriteFile(file, []byte(curl(t, url+"/kv?prefix")), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "load", "--server", other.endpoint, file)
	if got := must(t, "get", "--server", other.endpoint, "/lamp/2"); got != "off\n" {
		t.Errorf("got %q", got)
	}
	if got := ask("--request", "DELETE", url+"/kv/lamp/1"); !strings.HasPrefix(got, "204") {
		t.Errorf("got %q", got)
	}
	if got := try(t, "get", "--server", s.endpoint, "/lamp/1"); got.code != exitRefused {
		t.Errorf("%+v", got)
	}
	if got := curl(t, s.web()+"/readyz"); got != "ok\n" {
		t.Errorf("the pages are gone: %q", got)
	}
	for _, path := range []string{"/v1/kv//../x", "/v1/kv/a%2F%2Fb"} {
		if got := ask("--path-as-is", "--request", "PUT", "--data-binary", "x", s.web()+path); !strings.HasPrefix(got, "204") {
			t.Errorf("%s: %q", path, got)
		}
	}
	must(t, "get", "--server", s.endpoint, "//../x")
	must(t, "get", "--server", s.endpoint, "/a//b")
}

func TestWatchByCurl(t *testing.T) {
	t.Parallel()
	s := serve(t, "--http", "127.0.0.1:0")
	must(t, "set", "--server", s.endpoint, "/lamp/1", "on")
	cmd := exec.Command(interop.Program(t, "curl"), "--silent", "--no-buffer", "--max-time", "60", s.web()+"/v1/watch/lamp/")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it ends with its output
	in := bufio.NewScanner(out)
	want := func(lines ...string) {
		t.Helper()
		for _, line := range lines {
			for in.Scan() && (in.Text() == "" || in.Text()[0] == ':' || strings.HasPrefix(in.Text(), "data: ") || strings.HasPrefix(in.Text(), "id: ")) {
			}
			if in.Text() != line {
				t.Fatalf("got %q, want %q", in.Text(), line)
			}
		}
	}
	want("event: reset", "event: set", "event: synced")
	must(t, "del", "--server", s.endpoint, "/lamp/1")
	want("event: del")
	s.signal(os.Interrupt)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
}

// certified writes a certificate and its key, signed by another or itself.
func certified(t *testing.T, name string, by *x509.Certificate, byKey *ecdsa.PrivateKey) (cert, key string, of *x509.Certificate, ofKey *ecdsa.PrivateKey) {
	t.Helper()
	ofKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of = &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: by == nil, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if by == nil {
		by, byKey = of, ofKey
	}
	der, err := x509.CreateCertificate(rand.Reader, of, by, &ofKey.PublicKey, byKey)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(ofKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, of, ofKey
}

func TestHTTPSByCurl(t *testing.T) {
	t.Parallel()
	ca, _, caCert, caKey := certified(t, "authority", nil, nil)
	cert, key, _, _ := certified(t, "server", caCert, caKey)
	mine, mineKey, _, _ := certified(t, "client", caCert, caKey)
	stranger, strangerKey, _, _ := certified(t, "client", nil, nil)
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("a-token-of-the-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--http", "127.0.0.1:0", "--http-write", "--http-tls-cert", cert, "--http-tls-key", key, "--http-client-ca", ca, "--http-token-file", tokens, "--log-level", "debug")
	url := s.web()
	if !strings.HasPrefix(url, "https://") {
		t.Fatal(url)
	}
	ask := func(args ...string) string {
		return curl(t, append([]string{"--cacert", ca, "--output", os.DevNull, "--write-out", "%{http_code}"}, args...)...)
	}
	put := []string{"--request", "PUT", "--data-binary", "v", url + "/v1/kv/k"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{url + "/readyz"}, "200"},
		{put, "401"},
		{append([]string{"--cert", mine, "--key", mineKey}, put...), "204"},
		{append([]string{"-H", "Authorization: Bearer a-token-of-the-test"}, put...), "204"},
		{append([]string{"-H", "Authorization: Bearer b-token-of-the-test"}, put...), "401"},
	} {
		if got := ask(c.args...); got != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
	bad := exec.Command(interop.Program(t, "curl"), "--silent", "--cacert", ca, "--cert", stranger, "--key", strangerKey, url+"/readyz")
	if out, err := bad.CombinedOutput(); err == nil {
		t.Errorf("a certificate of somebody else: %s", out)
	}
	s.signal(os.Interrupt)
	s.wait()
	if text := s.stderr.String(); strings.Contains(text, "token-of-the-test") {
		t.Errorf("a token is in the log: %s", text)
	}
}

// The door lets in nobody who could not use the ports of the server.
func TestDoorIsAsOpenAsThePorts(t *testing.T) {
	t.Parallel()
	null, curve := sockets.Security{}, sockets.Security{CurveServer: true}
	for _, c := range []struct {
		address string
		o       chp.ServerOptions
		want    bool
	}{
		{"127.0.0.1:80", chp.ServerOptions{Host: "127.0.0.1", Security: null}, true},
		{"localhost:80", chp.ServerOptions{Host: "0.0.0.0", Security: null}, true},
		{"[::1]:80", chp.ServerOptions{Host: "::1", Security: null}, true},
		{"0.0.0.0:80", chp.ServerOptions{Host: "0.0.0.0", Security: null}, true},
		{"0.0.0.0:80", chp.ServerOptions{Host: "127.0.0.1", Security: null}, false},
		{"10.0.0.1:80", chp.ServerOptions{Host: "localhost", Security: null}, false},
		{"127.0.0.1:80", chp.ServerOptions{Host: "127.0.0.1", Security: curve}, false},
		{"127.0.0.1:80", chp.ServerOptions{Endpoints: []string{"ipc:///x"}}, false},
		{"127.0.0.1:80", chp.ServerOptions{Endpoints: []string{"ipc:///x", "tcp://127.0.0.1:5556"}}, true},
		{"0.0.0.0:80", chp.ServerOptions{Endpoints: []string{"tcp://127.0.0.1:5556"}}, false},
	} {
		if got := asOpen(c.address, &c.o); got != c.want {
			t.Errorf("%s of %s %s: %v", c.address, c.o.Host, c.o.Endpoints, got)
		}
	}
	dir := t.TempDir()
	must(t, "keygen", "--out", filepath.Join(dir, "server.key"))
	s := serve(t, "--http", "127.0.0.1:0", "--curve-key", filepath.Join(dir, "server.key"), "--curve-allow", "any")
	if code, _ := get(t, s.web()+"/v1/kv/k"); code != 404 {
		t.Errorf("%d", code)
	}
	if code, _ := get(t, s.web()+"/readyz"); code != 200 {
		t.Errorf("%d", code)
	}
	try(t, "serve", "--port", "0", "--http", "127.0.0.1:0", "--http-write", "--curve-key", filepath.Join(dir, "server.key"), "--curve-allow", "any").expect(t, exitUsage, "--http-token-file")
	try(t, "serve", "--port", "0", "--http", "0.0.0.0:0", "--http-write").expect(t, exitUsage, "--http-token-file")
	for _, args := range [][]string{
		{"--http-write"}, {"--http", "127.0.0.1:0", "--http-tls-cert", "x"}, {"--http", "127.0.0.1:0", "--http-tls-cert", "/none", "--http-tls-key", "/none"},
		{"--http", "127.0.0.1:0", "--http-client-ca", "x"}, {"--http", "127.0.0.1:0", "--http-token-file", "/none"}, {"--http", "127.0.0.1:0", "--http-token-file", os.DevNull}, {"--http", "127.0.0.1:0", "--http-rate", "-1"},
	} {
		if got := try(t, append([]string{"serve", "--port", "0"}, args...)...); got.code != exitUsage {
			t.Errorf("%s: %+v", args, got)
		}
	}
}
