package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"clustermap/chp"
	"clustermap/chp/access"
	"clustermap/chp/httpkv"
	"clustermap/chp/page"
	"clustermap/internal/command"

	"github.com/spf13/pflag"
)

// doorFlags are the flags of the map over HTTP, and of TLS for that.
type doorFlags struct {
	write              bool
	origins            []string
	rate               int
	tokens             string
	cert, key, clients string

	secure atomic.Pointer[tls.Config] // of cert, key and clients, as they last were
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
	source := command.Source{Flag: "http-tls-cert", Files: []string{f.cert, f.key}, Stays: "the certificates stay as they were", Load: f.loadTLS}
	if f.clients != "" {
		source.Files = append(source.Files, f.clients)
	}
	if err := begin(source); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return f.secure.Load(), nil
	}}, nil
}

// begin adds a source, and reads it for the first time.
func begin(source command.Source) error {
	command.AddSource(source)
	apply, _, err := source.Load()
	if err == nil {
		err = apply()
	}
	var failed *command.Error
	if err != nil && !errors.As(err, &failed) {
		err = fail(exitUsage, "--%s: %v", source.Flag, err)
	}
	return err
}

// loadTLS is command.Source.Load.
func (f *doorFlags) loadTLS() (apply func() error, now string, err error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, "", err
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if f.clients != "" {
		text, err := os.ReadFile(f.clients)
		if err != nil {
			return nil, "", fail(exitUsage, "--http-client-ca: %v", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(text) {
			return nil, "", fail(exitUsage, "--http-client-ca: %s has no certificate", f.clients)
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven // who collects metrics has none
		c.SessionTicketsDisabled = true            // one would outlive those who certify
	}
	return func() error { f.secure.Store(c); return nil }, "the certificate is valid until " + pair.Leaf.NotAfter.UTC().Format(time.RFC3339), nil
}

// certificates is an Access by another one. Requests have a certificate only as long as --http-client-ca has who certifies it: a
// connection may be older than what the file has now.
type certificates struct {
	httpkv.Access
	door *doorFlags
}

// whenBegun is the key of the configuration that was in effect when a connection began.
type whenBegun struct{}

// connected is http.Server.ConnContext.
func (f *doorFlags) connected(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, whenBegun{}, f.secure.Load())
}

// Who implements httpkv.Access.
func (c certificates) Who(r *http.Request) (string, error) {
	now := c.door.secure.Load()
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || r.Context().Value(whenBegun{}) == now {
		return c.Access.Who(r)
	}
	all := x509.VerifyOptions{Roots: now.ClientCAs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, one := range r.TLS.PeerCertificates[1:] {
		all.Intermediates.AddCert(one)
	}
	if _, err := r.TLS.PeerCertificates[0].Verify(all); err != nil {
		without, state := *r, *r.TLS
		state.VerifiedChains = nil
		without.TLS = &state
		r = &without
	}
	return c.Access.Who(r)
}

// Role implements httpkv.Roles.
func (c certificates) Role(name string) *chp.Role {
	if roles, ok := c.Access.(httpkv.Roles); ok {
		return roles.Role(name)
	}
	return nil
}

// tokenFile is the Access of those who have a token of a file, as that last was.
type tokenFile struct{ atomic.Pointer[httpkv.Proven] }

// Who implements httpkv.Access.
func (t *tokenFile) Who(r *http.Request) (string, error) { return t.Load().Who(r) }

// Allow implements httpkv.Access.
func (t *tokenFile) Allow(name string, verb httpkv.Verb, key string) error {
	return t.Load().Allow(name, verb, key)
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
		tokens := new(tokenFile)
		if err := begin(command.Source{Flag: "http-token-file", Files: []string{f.tokens}, Stays: "the tokens stay as they were", Load: func() (func() error, string, error) {
			text, err := os.ReadFile(f.tokens)
			if err != nil {
				return nil, "", err
			}
			proven, err := httpkv.NewProven(bytes.NewReader(text))
			if err != nil {
				return nil, "", fmt.Errorf("%s: %w", f.tokens, err)
			}
			return func() error { tokens.Store(proven); return nil }, command.Count(proven.Tokens(), "token"), nil
		}}); err != nil {
			return nil, err
		}
		options.Access = tokens
	case f.clients != "":
		options.Access, _ = httpkv.NewProven(nil)
	case !asOpen(address, o):
		if f.write || len(f.origins) > 0 || f.rate > 0 {
			return nil, fail(exitUsage, "/v1/ of --http would let in others than the ports of the server do; use --http-token-file or --http-client-ca")
		}
		return nil, nil
	}
	if f.clients != "" {
		options.Access = certificates{options.Access, f}
	}
	return httpkv.New(options), nil
}

// doorRights are the rights of a file for requests over HTTP: by a token or a certificate, or of nobody.
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

// Role implements httpkv.Roles.
func (d doorRights) Role(name string) *chp.Role { return d.file.Policy().Role(name) }

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
