package httpkv

import (
	"bufio"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"clustermap/chp"
)

// Verb is what somebody may do with a key, or not.
type Verb string

// Verbs.
const (
	VerbRead  Verb = "read"  // get a key, and its changes; know whether a condition on it holds
	VerbWrite Verb = "write" // set and delete it
)

// Access says who makes a request, and what that one may do. It must be safe for concurrent use.
type Access interface {
	// Who returns who makes a request. After an error it is answered with 401. For a stream it is
	// asked again each second, so that one ends whose token is no longer valid.
	Who(r *http.Request) (name string, err error)

	// Allow returns an error if somebody may not do something with a key or, if it ends with a
	// slash, with all keys that begin with it; "" stands for all. A lease is its key, $lease/ and the ID.
	Allow(name string, verb Verb, key string) error
}

// Roles is what an [Access] may be, too: then a lease belongs to who was granted it, and updates have their authors
// (chp.ServerOptions.Stamp). Whoever may write some key may be granted leases, renew and revoke these, look at them and attach keys to
// them, which for others is only allowed to those who may write the leases' keys.
type Roles interface {
	// Role returns what somebody may do, by that one's name, or nil.
	Role(name string) *chp.Role
}

// ErrNoProof is the error of an Access for a request that does not say who makes it.
var ErrNoProof = errors.New("httpkv: the request has neither a bearer token nor a certificate")

// ErrToken is the error of an Access for a token that nobody has. It does not name it.
var ErrToken = errors.New("httpkv: the bearer token is not valid")

// Bearer returns the bearer token of a request, or "".
func Bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Certified returns the common name of the certificate of who makes a request, if the server has verified it
// (tls.Config.ClientCAs) and it is valid still: a connection, and a stream, may last longer than it is.
func Certified(r *http.Request) (name string, ok bool) {
	if r.TLS == nil {
		return "", false
	}
	now := time.Now()
	for _, chain := range r.TLS.VerifiedChains {
		if !slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return now.Before(c.NotBefore) || now.After(c.NotAfter) }) {
			return chain[0].Subject.CommonName, true
		}
	}
	return "", false
}

// everybody may do everything.
type everybody struct{}

func (everybody) Who(*http.Request) (string, error)         { return "", nil }
func (everybody) Allow(name string, v Verb, k string) error { return nil }

// Proven is the Access of those who have a token, or a certificate that the server has verified
// (tls.Config.ClientCAs). They may do everything.
type Proven struct {
	tokens map[[sha256.Size]byte]struct{}
}

// NewProven returns an Access with the tokens that a file has, one on each line; lines that begin with #
// are comments. With nil it accepts certificates only.
func NewProven(file io.Reader) (*Proven, error) {
	p := &Proven{tokens: map[[sha256.Size]byte]struct{}{}}
	if file == nil {
		return p, nil
	}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#':
			continue
		case len(line) < minToken || strings.ContainsAny(line, " \t"):
			return nil, fmt.Errorf("line %d: a token has at least %d characters, and no spaces", n, minToken)
		}
		p.tokens[sha256.Sum256([]byte(line))] = struct{}{}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(p.tokens) == 0 {
		return nil, errors.New("there is no token in it")
	}
	return p, nil
}

// Tokens returns the number of tokens.
func (p *Proven) Tokens() int { return len(p.tokens) }

// Who implements [Access].
func (p *Proven) Who(r *http.Request) (string, error) {
	if token := Bearer(r); token != "" {
		// What is compared is hashes, so the time that it takes says nothing of a token.
		if _, ok := p.tokens[sha256.Sum256([]byte(token))]; !ok {
			return "", ErrToken
		}
		return "", nil
	}
	name, ok := Certified(r)
	if !ok {
		return "", ErrNoProof
	}
	return name, nil
}

// Allow implements [Access].
func (p *Proven) Allow(string, Verb, string) error { return nil }
