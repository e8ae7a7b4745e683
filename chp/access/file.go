package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"clustermap/chp"
	"clustermap/sockets"
)

// File follows a file: it is the [Policy] that the file last was without an error. It is a chp.Access, and
// safe for concurrent use.
type File struct {
	name  string
	reads atomic.Uint64

	mu      sync.RWMutex
	policy  *Policy
	changed chan struct{}
}

var _ chp.Access = (*File)(nil)

// Open reads a file.
func Open(name string) (*File, error) {
	f := &File{name: name, changed: make(chan struct{})}
	_, err := f.Reload()
	if err != nil {
		return nil, err
	}
	return f, nil
}

// read reads the file, which must be no larger than it may be. It returns the number of the read, too.
func (f *File) read() (text []byte, number uint64, err error) {
	number = f.reads.Add(1)
	file, err := os.Open(f.name)
	if err != nil {
		return nil, number, err
	}
	defer file.Close()
	text, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	return text, number, err
}

// Load reads the file again, and returns what it says, without an effect: see Set.
func (f *File) Load() (*Policy, error) {
	text, number, err := f.read()
	if err != nil {
		return nil, err
	}
	return f.parse(text, number)
}

// parse parses a text of the file.
func (f *File) parse(text []byte, number uint64) (*Policy, error) {
	p, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	p.number = number
	return p, nil
}

// Set puts a policy into effect, and reports whether its text is another one than that of the policy before. One that was read
// before that has no effect.
func (f *File) Set(p *Policy) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.policy != nil && (p.text == f.policy.text || p.number > 0 && p.number < f.policy.number) {
		return false
	}
	f.policy = p
	close(f.changed)
	f.changed = make(chan struct{})
	return true
}

// Reload reads the file again, and reports whether its text has changed. After an error all stays as it was.
func (f *File) Reload() (changed bool, err error) {
	p, err := f.Load()
	return err == nil && f.Set(p), err
}

// Watch looks at the file each interval, until the context ends, and reads it again when its text has changed.
// It calls report with each change, and each error once.
func (f *File) Watch(ctx context.Context, interval time.Duration, report func(error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	last := ""                // error that was reported
	looked := f.Policy().text // the last text that was read
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		text, number, err := f.read()
		var p *Policy
		if err == nil {
			sum := sha256.Sum256(text)
			if sum == looked {
				continue
			}
			looked = sum
			p, err = f.parse(text, number)
		}
		switch {
		case err == nil:
			if last = ""; f.Set(p) {
				report(nil)
			}
		case err.Error() != last:
			last = err.Error()
			report(err)
		}
	}
}

// Policy returns what the file says.
func (f *File) Policy() *Policy {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.policy
}

// Roles returns the roles of all users: see chp.Access.
func (f *File) Roles() []*chp.Role { return f.Policy().Roles() }

// Changed implements chp.Access: it returns a channel that is closed when there is another Policy.
func (f *File) Changed() <-chan struct{} {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.changed
}

// proofProperty is the property of a client that says by which of its user's proofs it was accepted. A client
// cannot announce it, since its name does not begin with X-.
const proofProperty = "Access-Proof"

// proofOf returns what stands for a proof. It tells nobody what that is.
func proofOf(kind, proof string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + proof))
	return hex.EncodeToString(sum[:16])
}

// Authenticate implements chp.Access.
func (f *File) Authenticate(ctx context.Context, r sockets.AuthRequest) (sockets.User, error) {
	p := f.Policy()
	switch r.Mechanism {
	case "CURVE":
		if name, ok := p.Curve(r.PublicKey()); ok {
			return sockets.User{ID: name}, nil
		}
	case "PLAIN":
		ok, err := p.passwordFrom(ctx, r.Address, r.Username(), r.Password())
		if err != nil {
			return sockets.User{}, err
		}
		if ok {
			name := r.Username()
			return sockets.User{ID: name, Metadata: map[string]string{proofProperty: proofOf("plain", p.users[name].plain)}}, nil
		}
	case "NULL":
		if p.anonymous != nil {
			return sockets.User{ID: Anonymous}, nil
		}
	}
	return sockets.User{}, sockets.ErrDenied
}

// Role implements chp.Access. What has proved the client must still be its user's.
func (f *File) Role(client *sockets.Peer) *chp.Role {
	p := f.Policy()
	name := client.UserID()
	if key := client.PublicKey(); !key.IsZero() {
		if of, ok := p.Curve(key); !ok || of != name {
			return nil
		}
		return p.Role(name)
	}
	if name == "" || name == Anonymous {
		return p.anonymous
	}
	u := p.users[name]
	if proof, ok := client.Property(proofProperty); u == nil || u.plain == "" || !ok || proof != proofOf("plain", u.plain) {
		return nil
	}
	return u.role
}
