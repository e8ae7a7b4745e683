package command

import (
	"context"
	"sync"
	"sync/atomic"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// serverFiles is what a server with CURVE has from files: its keys and those that it accepts, as they
// were when each file was last read without an error.
type serverFiles struct {
	current atomic.Pointer[allowed]

	mu      sync.Mutex
	lists   lists
	changed func(own []zmtp.SecretKey, admins []zmtp.PublicKey) error // or nil
}

// lists are the contents of the files.
type lists struct {
	own     []zmtp.KeyPair
	admins  []zmtp.PublicKey
	anybody bool // clients need no key in the list
	clients []zmtp.PublicKey
	names   map[zmtp.PublicKey]string // of clients
}

// allowed is who is accepted at one time.
type allowed struct {
	anybody bool
	users   map[zmtp.PublicKey]string // by their keys; the name of one without a name is its key
}

// accepts reports whether the owner of a key is accepted.
func (a *allowed) accepts(key zmtp.PublicKey) bool {
	_, ok := a.users[key]
	return ok || a.anybody
}

// server reads the files of a server. It accepts the keys in allow, which are read again at SIGHUP if that names a file, or any key, and in all
// cases those of administrators and its own, which the other server of a pair uses too.
func (k Keys) server(keyFiles []string, allow string, admins []zmtp.PublicKey) (*serverFiles, error) {
	own, err := k.readKeyFiles(keyFiles)
	if err != nil {
		return nil, err
	}
	f := &serverFiles{lists: lists{own: own, admins: admins, anybody: allow == allowAny}}
	load := func() (apply func() error, now string, err error) {
		names := map[zmtp.PublicKey]string{}
		clients, err := k.namedKeys(allow, names)
		return func() error { return f.change(func(l *lists) { l.clients, l.names = clients, names }) }, Count(len(clients), "key"), err
	}
	if f.lists.anybody {
		return f, f.change(func(*lists) {})
	}
	if isFile(allow) {
		AddSource(Source{Flag: "curve-allow", Files: []string{allow}, Stays: "the accepted keys stay as they were", Load: load})
	}
	apply, _, err := load()
	if err != nil {
		return nil, Fail(ExitUsage, "--curve-allow: %w", err)
	}
	return f, apply()
}

// change changes what the files have.
func (f *serverFiles) change(how func(*lists)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(&f.lists)
	l := &f.lists
	now := &allowed{l.anybody, map[zmtp.PublicKey]string{}}
	add := func(key zmtp.PublicKey) {
		if now.users[key] = l.names[key]; now.users[key] == "" {
			now.users[key] = key.String()
		}
	}
	for _, key := range append(l.clients, l.admins...) {
		add(key)
	}
	for _, pair := range l.own {
		add(pair.Public)
	}
	f.current.Store(now)
	return f.tell()
}

// follow makes f be told of each change, and of what there is now.
func (f *serverFiles) follow(changed func([]zmtp.SecretKey, []zmtp.PublicKey) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = changed
	return f.tell()
}

// tell calls changed. mu must be held.
func (f *serverFiles) tell() error {
	if f.changed == nil {
		return nil
	}
	return f.changed(f.lists.secrets(), f.lists.admins)
}

func (l *lists) secrets() (all []zmtp.SecretKey) {
	for _, pair := range l.own {
		all = append(all, pair.Secret)
	}
	return all
}

// security returns the security of the server.
func (f *serverFiles) security() sockets.Security {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := f.lists.secrets()
	s := sockets.Security{CurveServer: true, CurveSecretKey: own[0], CurveMoreKeys: own[1:]}
	if !f.lists.anybody {
		s.Authenticate = f.authenticate
	}
	return s
}

// authenticate implements [sockets.Authenticator]. The user ID is the name behind the key in the
// file, or the key.
func (f *serverFiles) authenticate(_ context.Context, r sockets.AuthRequest) (sockets.User, error) {
	name, ok := f.current.Load().users[r.PublicKey()]
	if r.Mechanism != "CURVE" || !ok {
		return sockets.User{}, sockets.ErrDenied
	}
	return sockets.User{ID: name}, nil
}
