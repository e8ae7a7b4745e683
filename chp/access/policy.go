package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"clustermap/chp"
	"clustermap/chp/internal/rights"
	"clustermap/internal/hosts"
	"clustermap/sockets"
	"clustermap/zmtp"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/crypto/bcrypt"
)

// Anonymous is the name of clients that prove nothing.
const Anonymous = "anonymous"

// Policy is who the clients are and what each may do. It is immutable, and safe for concurrent use.
type Policy struct {
	text         [sha256.Size]byte // a sum of what it was parsed from
	number       uint64            // of the read of its File, or 0
	users        map[string]*user
	curve        map[zmtp.PublicKey]string // names by what proves them
	tokens       map[string]string
	certificates map[string]string
	anonymous    *chp.Role // nil if nobody is accepted without a proof
	anyHash      string    // the password of some user
	compared     compared
}

type user struct {
	role  *chp.Role
	plain string // the hash of the password
}

// Error reports what is wrong with a file, and where.
type Error struct {
	Line, Column int // 0 if unknown
	Reason       string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "access: " + e.Reason
	}
	return fmt.Sprintf("access: line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// file is the form of a file.
type file struct {
	Users map[string]struct {
		Curve       []string `toml:"curve"`
		Plain       string   `toml:"plain"`
		Token       []string `toml:"token"`
		Certificate []string `toml:"certificate"`
		Groups      []string `toml:"groups"`
	} `toml:"users"`
	Rules []struct {
		Who   []string `toml:"who"`
		Read  []string `toml:"read"`
		Write []string `toml:"write"`
		Admin bool     `toml:"admin"`
	} `toml:"rules"`
	Limits []struct {
		Who     []string `toml:"who"`
		Updates int      `toml:"updates"`
		Bytes   int64    `toml:"bytes"`
		Keys    int64    `toml:"keys"`
		Map     int64    `toml:"map"`
	} `toml:"limits"`
}

// Parse parses a file. The error is an [*Error].
func Parse(text []byte) (*Policy, error) {
	if len(text) > maxFile {
		return nil, &Error{Reason: fmt.Sprintf("the file has %d bytes; the most is %d", len(text), maxFile)}
	}
	var f file
	d := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, syntaxError(err)
	}
	var tables map[string]any
	if err := toml.Unmarshal(text, &tables); err != nil {
		return nil, syntaxError(err)
	}
	if err := checkNames(tables); err != nil {
		return nil, err
	}
	p := &Policy{text: sha256.Sum256(text), users: map[string]*user{}, curve: map[zmtp.PublicKey]string{}, tokens: map[string]string{}, certificates: map[string]string{}}
	rand.Read(p.compared.key[:]) // never fails
	groups := map[string]bool{}
	names := slices.Sorted(maps.Keys(f.Users))
	for _, name := range names {
		if err := p.add(name, &f, groups); err != nil {
			return nil, err
		}
	}
	for i, r := range f.Rules {
		if err := checkWho(r.Who, f.Users, groups); err != "" {
			return nil, &Error{Reason: fmt.Sprintf("rule %d: %s", i+1, err)}
		}
		if _, err := chp.NewRole(chp.RoleOptions{Read: r.Read, Write: r.Write}); err != nil {
			return nil, &Error{Reason: fmt.Sprintf("rule %d: %s", i+1, strings.TrimPrefix(err.Error(), "chp: "))}
		}
		if len(r.Read)+len(r.Write) == 0 && !r.Admin {
			return nil, &Error{Reason: fmt.Sprintf("rule %d allows nothing", i+1)}
		}
	}
	for i, l := range f.Limits {
		if err := checkWho(l.Who, f.Users, groups); err != "" {
			return nil, &Error{Reason: fmt.Sprintf("limit %d: %s", i+1, err)}
		}
		if l.Updates == 0 && l.Bytes == 0 && l.Keys == 0 && l.Map == 0 || l.Updates != 0 && l.Updates < rights.LeastUpdates || l.Bytes != 0 && l.Bytes < rights.LeastBytes || l.Keys < 0 || l.Map < 0 {
			return nil, &Error{Reason: fmt.Sprintf("limit %d: want updates, at least %d a second, bytes, at least %d, or keys or map, above 0", i+1, rights.LeastUpdates, rights.LeastBytes)}
		}
	}
	for _, name := range names {
		p.users[name].role, _ = f.role(name, f.Users[name].Groups)
	}
	if role, some := f.role(Anonymous, nil); some {
		p.anonymous = role
	}
	return p, nil
}

// syntaxError returns the error for a file that is not one.
func syntaxError(err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		line, column := strict.Errors[0].Position()
		return &Error{line, column, fmt.Sprintf("there is no %s", strings.Join(strict.Errors[0].Key(), "."))}
	}
	var syntax *toml.DecodeError
	if errors.As(err, &syntax) {
		line, column := syntax.Position()
		return &Error{line, column, strings.TrimPrefix(syntax.Error(), "toml: ")}
	}
	return &Error{Reason: strings.TrimPrefix(err.Error(), "toml: ")}
}

// checkNames returns an error if a field has capital letters. To package toml Rules is rules, of which only one would count.
func checkNames(tables map[string]any) error {
	for name, value := range tables {
		if name != strings.ToLower(name) {
			return &Error{Reason: fmt.Sprintf("there is no %s", name)}
		}
		var within []any
		switch of := value.(type) {
		case []any: // rules, limits
			within = of
		case map[string]any:
			if name == "users" {
				within = slices.Collect(maps.Values(of))
			}
		}
		for _, one := range within {
			if fields, ok := one.(map[string]any); ok {
				if err := checkNames(fields); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// add adds a user of a file, without its role, and its groups to groups.
func (p *Policy) add(name string, f *file, groups map[string]bool) error {
	u := f.Users[name]
	bad := func(format string, a ...any) error {
		return &Error{Reason: fmt.Sprintf("user %q: ", name) + fmt.Sprintf(format, a...)}
	}
	if name == Anonymous || !isName(name) {
		return bad("want a name of up to %d letters of ASCII, digits, and . _ - @ + that begins with a letter or digit, other than %s", maxName, Anonymous)
	}
	for _, g := range u.Groups {
		if !isName(g) {
			return bad("the group %q has no such name", g)
		}
		groups[g] = true
	}
	taken := func(what, other string) error { return bad("has the %s of %q", what, other) }
	for _, text := range u.Curve {
		key, err := zmtp.ParsePublicKey(text)
		if err != nil {
			return bad("curve: not a public key of %d characters", zmtp.KeyText)
		}
		if other, ok := p.curve[key]; ok {
			return taken("key", other)
		}
		p.curve[key] = name
	}
	for _, text := range u.Token {
		if !isTokenHash(text) {
			return bad("token: not a hash from chp access token, %sand 64 digits", tokenPrefix)
		}
		if other, ok := p.tokens[text]; ok {
			return taken("token", other)
		}
		p.tokens[text] = name
	}
	for _, cn := range u.Certificate {
		if cn == "" {
			return bad("certificate: the name is empty")
		}
		if other, ok := p.certificates[cn]; ok {
			return taken("certificate", other)
		}
		p.certificates[cn] = name
	}
	if u.Plain != "" {
		cost, err := bcrypt.Cost([]byte(u.Plain))
		if err != nil {
			return bad("plain: not a hash from chp access hash")
		}
		if cost > mostCost {
			return bad("plain: the hash has a cost of %d, with which it would take too long; the most is %d", cost, mostCost)
		}
		p.anyHash = u.Plain
	}
	p.users[name] = &user{plain: u.Plain}
	return nil
}

// isName reports whether text can be the name of a user or a group. No two names look
// alike.
func isName(text string) bool {
	if text == "" || len(text) > maxName {
		return false
	}
	for i, c := range []byte(text) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._-@+", rune(c))) {
			return false
		}
	}
	return true
}

// checkWho returns what is wrong with the names of a rule, or "".
func checkWho[U any](who []string, users map[string]U, groups map[string]bool) string {
	if len(who) == 0 {
		return "who is empty"
	}
	for _, name := range who {
		group, of := strings.CutPrefix(name, "@")
		_, known := users[name]
		switch {
		case name == "*" || name == Anonymous || known || of && groups[group]:
		case of:
			return fmt.Sprintf("no user is in the group %q", group)
		default:
			return fmt.Sprintf("there is no user %q", name)
		}
	}
	return ""
}

// concerns reports whether a rule for some is one for a user.
func concerns(who []string, name string, groups []string) bool {
	return slices.ContainsFunc(who, func(one string) bool {
		group, of := strings.CutPrefix(one, "@")
		return one == "*" || one == name || of && slices.Contains(groups, group)
	})
}

// role returns the role of a user, and whether a rule is for it.
func (f *file) role(name string, groups []string) (_ *chp.Role, some bool) {
	o := chp.RoleOptions{Name: name}
	for _, r := range f.Rules {
		if concerns(r.Who, name, groups) {
			some = true
			o.Read, o.Write, o.Admin = append(o.Read, r.Read...), append(o.Write, r.Write...), o.Admin || r.Admin
		}
	}
	for _, l := range f.Limits {
		if concerns(l.Who, name, groups) {
			o.Limits.Updates, o.Limits.Bytes = max(o.Limits.Updates, l.Updates), max(o.Limits.Bytes, l.Bytes)
			o.Limits.Keys, o.Limits.Map = max(o.Limits.Keys, l.Keys), max(o.Limits.Map, l.Map)
		}
	}
	role, err := chp.NewRole(o)
	if err != nil {
		panic(err) // each rule was checked
	}
	return role, some
}

// Users returns the names of the users, sorted.
func (p *Policy) Users() []string { return slices.Sorted(maps.Keys(p.users)) }

// Curve returns who has proved a key with CURVE.
func (p *Policy) Curve(key zmtp.PublicKey) (name string, ok bool) {
	name, ok = p.curve[key]
	return name, ok
}

// Token returns whose a token is, such as that of an HTTP request.
func (p *Policy) Token(token string) (name string, ok bool) {
	// What is compared is hashes, so the time that it takes says nothing of a token.
	name, ok = p.tokens[tokenPrefix+hashToken(token)]
	return name, ok
}

// Certificate returns who has proved a certificate with a common name.
func (p *Policy) Certificate(cn string) (name string, ok bool) {
	name, ok = p.certificates[cn]
	return name, ok
}

// Password reports whether a user has a password. It takes a twentieth of a second the first time,
// and waits while others are compared.
func (p *Policy) Password(ctx context.Context, name, password string) (bool, error) {
	return p.passwordFrom(ctx, "", name, password)
}

// passwordFrom is Password for a client with an address. It returns sockets.ErrTemporary if others with that address
// wait already.
func (p *Policy) passwordFrom(ctx context.Context, address, name, password string) (bool, error) {
	sum := p.compared.sum(name, password)
	if same, known := p.compared.get(sum); known {
		return same, nil
	}
	hash := p.anyHash // so that it takes as long for a user that does not exist
	u := p.users[name]
	if u != nil && u.plain != "" {
		hash = u.plain
	}
	if hash == "" || len(password) > maxPassword {
		return false, nil
	}
	if !hashing.begin(ctx, address) {
		return false, cmp.Or(ctx.Err(), sockets.ErrTemporary)
	}
	defer hashing.end(address)
	same := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil && u != nil && u.plain != ""
	p.compared.add(sum, same)
	return same, nil
}

// hashing bounds the passwords that are compared at a time, and of each address those that wait for it: whoever tries
// passwords keeps out none but his neighbours.
var hashing = queue{places: make(chan struct{}, maxHashes), of: map[netip.Addr]int{}}

type queue struct {
	places chan struct{}

	mu sync.Mutex
	of map[netip.Addr]int // those that wait or are compared
}

// begin waits for a place. It returns false if too many wait with the address, or the context has ended.
func (q *queue) begin(ctx context.Context, address string) bool {
	a := hosts.Of(address)
	q.mu.Lock()
	room := q.of[a] < maxWaiting
	if room {
		q.of[a]++
	}
	q.mu.Unlock()
	if !room {
		return false
	}
	select {
	case q.places <- struct{}{}:
		return true
	case <-ctx.Done():
		q.leave(a)
		return false
	}
}

// end gives the place back.
func (q *queue) end(address string) {
	<-q.places
	q.leave(hosts.Of(address))
}

func (q *queue) leave(a netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[a]--; q.of[a] == 0 {
		delete(q.of, a)
	}
}

// compared remembers some of the passwords that were compared, so that each is hashed once: a client makes
// three connections, all of them come back at once, and one that is refused tries again for ever. It keeps hashes with a key
// of its own.
type compared struct {
	key   [32]byte
	mu    sync.Mutex
	known map[[sha256.Size]byte]bool
	wrong int // of known
}

func (c *compared) sum(name, password string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, c.key[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(name)))) // never fails; both may have any bytes
	h.Write([]byte(name + password))
	h.Sum(sum[:0])
	return sum
}

func (c *compared) get(sum [sha256.Size]byte) (same, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same, known = c.known[sum]
	return same, known
}

// add forgets a wrong one if there are too many: of right ones there is one for each user.
func (c *compared) add(sum [sha256.Size]byte, same bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[[sha256.Size]byte]bool{}
	}
	_, twice := c.known[sum] // it was compared twice at a time
	c.known[sum] = same
	if same || twice {
		return
	}
	if c.wrong++; c.wrong <= maxCompared {
		return
	}
	for other, same := range c.known {
		if !same && other != sum {
			delete(c.known, other)
			c.wrong--
			break
		}
	}
}

// Role returns what a user, or Anonymous, may do, or nil if it is unknown.
func (p *Policy) Role(name string) *chp.Role {
	if name == Anonymous {
		return p.anonymous
	}
	if u := p.users[name]; u != nil {
		return u.role
	}
	return nil
}

// Roles returns the roles of all users, and of Anonymous.
func (p *Policy) Roles() (all []*chp.Role) {
	for _, name := range p.Users() {
		all = append(all, p.users[name].role)
	}
	if p.anonymous != nil {
		all = append(all, p.anonymous)
	}
	return all
}

// Allow returns nil if a user, or Anonymous, may do something with a key or, to read it, a subtree, and a
// [*chp.AccessError] otherwise.
func (p *Policy) Allow(name string, verb chp.Verb, key string) error {
	if role := p.Role(name); role != nil {
		return role.Allow(verb, key)
	}
	return &chp.AccessError{Name: cmp.Or(name, Anonymous), Verb: verb, Key: key}
}
