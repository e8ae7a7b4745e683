package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"strings"

	"clustermap/chp"
	"clustermap/chp/access"
	"clustermap/chp/httpkv"
	"clustermap/chp/page"

	"github.com/spf13/pflag"
)

// doorFlags are the flags of the map over HTTP, and of TLS for that.
type doorFlags struct {
	write              bool
	origins            []string
	rate               int
	tokens             string
	cert, key, clients string
}

func (f *doorFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.write, "http-write", false, "let requests to /v1/ of --http change the map")
	flags.StringArrayVar(&f.origins, "http-cors", nil, "`origin` of pages that may use /v1/ in a browser, such as https://app.example; repeat it for several, * allows all")
	flags.IntVar(&f.rate, "http-rate", 0, "requests a second to /v1/ from one address; 0 means no limit")
	flags.StringVar(&f.tokens, "http-token-file", "", "`file` with a bearer token on each line, of which requests to /v1/ need one")
	flags.StringVar(&f.cert, "http-tls-cert", "", "`file` with the certificate of --http and those that it needs, in PEM; then it speaks HTTPS")
	flags.StringVar(&f.key, "http-tls-key", "", "`file` with the key of that certificate, in PEM")
	flags.StringVar(&f.clients, "http-client-ca", "", "`file` with certificates, in PEM, of those who certify clients: requests to /v1/ need such a certificate, or a token")
}

// given reports whether a flag is there that needs --http.
func (f *doorFlags) given() bool {
	return f.write || len(f.origins) > 0 || f.rate != 0 || f.tokens != "" || f.cert != "" || f.key != "" || f.clients != ""
}

// tls returns the configuration of HTTPS, or nil.
func (f *doorFlags) tls() (*tls.Config, error) {
	switch {
	case (f.cert == "") != (f.key == ""):
		return nil, fail(exitUsage, "--http-tls-cert and --http-tls-key need each other")
	case f.cert == "" && f.clients != "":
		return nil, fail(exitUsage, "--http-client-ca needs --http-tls-cert")
	case f.cert == "":
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fail(exitUsage, "--http-tls-cert: %v", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if f.clients != "" {
		text, err := os.ReadFile(f.clients)
		if err != nil {
			return nil, fail(exitUsage, "--http-client-ca: %v", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fail(exitUsage, "--http-client-ca: %s has no certificate", f.clients)
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven // who collects metrics has none
	}
	return c, nil
}

// handler returns the map over HTTP, or nil if it would let in others than the server's ports do.
func (f *doorFlags) handler(address string, names []string, o *chp.ServerOptions) (*httpkv.Handler, error) {
	options := httpkv.Options{Write: f.write, Hosts: names, Origins: f.origins, Rate: f.rate}
	switch {
	case f.rate < 0:
		return nil, fail(exitUsage, "--http-rate %d: must be positive, or 0 for no limit", f.rate)
	case o.Access != nil && f.tokens != "":
		return nil, fail(exitUsage, "--http-token-file: with --access the tokens are in its file")
	case o.Access != nil:
		options.Access = doorRights{o.Access.(*access.File), asOpen(address, o)}
	case f.tokens != "":
		text, err := os.ReadFile(f.tokens)
		if err != nil {
			return nil, fail(exitUsage, "--http-token-file: %v", err)
		}
		proven, err := httpkv.NewProven(bytes.NewReader(text))
		if err != nil {
			return nil, fail(exitUsage, "--http-token-file: %s: %v", f.tokens, err)
		}
		options.Access = proven
	case f.clients != "":
		options.Access, _ = httpkv.NewProven(nil)
	case !asOpen(address, o):
		if f.write || len(f.origins) > 0 || f.rate > 0 {
			return nil, fail(exitUsage, "/v1/ of --http would let in others than the ports of the server do; use --http-token-file or --http-client-ca")
		}
		return nil, nil
	}
	return httpkv.New(options), nil
}

// doorRights are the rights of a file for requests over HTTP: by a token or a certificate, or of nobody. Leases, which belong to
// whoever has granted them, are for those who may write the whole map.
type doorRights struct {
	file *access.File
	open bool // the ports accept, as widely, those who prove nothing; else a rule for "*" means the others
}

// Who implements httpkv.Access.
func (d doorRights) Who(r *http.Request) (string, error) {
	policy := d.file.Policy()
	if token := httpkv.Bearer(r); token != "" {
		if name, ok := policy.Token(token); ok {
			return name, nil
		}
		return "", httpkv.ErrToken
	}
	if cn, ok := httpkv.Certified(r); ok {
		if name, ok := policy.Certificate(cn); ok {
			return name, nil
		}
	}
	if !d.open || policy.Role(access.Anonymous) == nil {
		return "", httpkv.ErrNoProof
	}
	return access.Anonymous, nil
}

// Allow implements httpkv.Access.
func (d doorRights) Allow(name string, verb httpkv.Verb, key string) error {
	v := chp.VerbRead
	if verb == httpkv.VerbWrite {
		v = chp.VerbWrite
	}
	return d.file.Policy().Allow(name, v, key)
}

// asOpen reports whether who reaches an address may use the map all the same: clients prove nothing, and
// the server listens for them as widely.
func asOpen(address string, o *chp.ServerOptions) bool {
	if s := &o.Security; s.CurveServer || s.PlainServer || s.Authenticate != nil {
		return false
	}
	host, _, _ := net.SplitHostPort(address)
	local := isLocal(host)
	endpoints := o.Endpoints
	if len(endpoints) == 0 {
		endpoints = []string{"tcp://" + net.JoinHostPort(o.Host, "0")}
	}
	for _, e := range endpoints {
		at, tcp := strings.CutPrefix(e, "tcp://")
		if host, _, err := net.SplitHostPort(at); tcp && err == nil && (local || !isLocal(host)) {
			return true
		}
	}
	return false
}

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// sides returns a handler of all paths: of /v1/ by the map, if there is a door to it, of the page, and of the others.
func sides(door *httpkv.Handler, write bool, pages http.Handler) http.Handler {
	front := page.New(page.Options{Door: door != nil, Write: door != nil && write})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case door != nil && httpkv.Handles(r):
			door.ServeHTTP(w, r)
		case page.Handles(r):
			front.ServeHTTP(w, r)
		default:
			pages.ServeHTTP(w, r)
		}
	})
}
