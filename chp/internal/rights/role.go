package rights

import (
	"bytes"
	"fmt"
	"slices"

	"clustermap/chp/internal/subtree"
	"clustermap/internal/kvmsg"
)

// Limits bound what a client sends and adds. 0 means no limit.
type Limits struct {
	Updates int   // a second
	Bytes   int64 // of updates, a second

	Keys int64 // that there may be of those that it may write
	Map  int64 // bytes that these may have in the map
}

// Rates returns the limits of what is sent a second.
func (l Limits) Rates() Limits { return Limits{Updates: l.Updates, Bytes: l.Bytes} }

// Shares reports whether there are limits of what is in the map.
func (l Limits) Shares() bool { return l.Keys > 0 || l.Map > 0 }

// Role is what a client may do. It is immutable, and safe for concurrent use. The zero Role may
// do nothing.
type Role struct {
	name        string
	read, write subtree.Set
	admin       bool
	limits      Limits
}

// RoleError is chp.RoleError: why a right is malformed.
type RoleError struct {
	Verb    kvmsg.Verb
	Subtree string
	Reason  string
}

func (e *RoleError) Error() string { return fmt.Sprintf("chp: %v %q %s", e.Verb, e.Subtree, e.Reason) }

// NewRole returns the role of a client with a name that may read and write some parts of the
// map.
func NewRole(name string, read, write []string, admin bool, limits Limits) (*Role, error) {
	r := &Role{name: name, admin: admin, limits: limits}
	for _, spec := range read {
		if err := Check(kvmsg.VerbRead, spec); err != nil {
			return nil, err
		}
	}
	for _, spec := range write {
		if err := Check(kvmsg.VerbWrite, spec); err != nil {
			return nil, err
		}
	}
	if len(read) > 0 {
		r.read = subtree.New(read)
	}
	if len(write) > 0 {
		r.write = subtree.New(write)
	}
	return r, nil
}

// Check returns an error if a part of the map cannot be one that somebody may read or write. Single keys can be
// written only: a subscription stands for all keys that begin with it, so nobody could follow one
// key alone.
func Check(verb kvmsg.Verb, spec string) error {
	switch err := subtree.Check(spec); {
	case spec == "/":
		return &RoleError{verb, spec, `is no subtree: "" is the whole map`}
	case err != nil:
		return &RoleError{verb, spec, err.Reason}
	case verb == kvmsg.VerbRead && !subtree.IsTree(spec):
		return &RoleError{verb, spec, "is no subtree: it does not end with a slash"}
	}
	return nil
}

// Root returns the role that may do everything, with a name.
func Root(name string) *Role {
	all := subtree.New(nil)
	return &Role{name: name, read: all, write: all, admin: true}
}

// Peer returns the role of the other server of a pair, which reads the map by a protocol of its own.
func Peer(name string) *Role { return &Role{name: name, admin: true} }

// Name returns the name of the client.
func (r *Role) Name() string { return r.name }

// Admin reports whether the client is an administrator.
func (r *Role) Admin() bool { return r.admin }

// Limits returns the client's limits.
func (r *Role) Limits() Limits { return r.limits }

// Reads and Writes return the parts of the map that the client may read and write, sorted.
func (r *Role) Reads() []string { return slices.Clone(r.read.List) }

// Writes is described at Reads.
func (r *Role) Writes() []string { return slices.Clone(r.write.List) }

// WritesAll reports whether the client may write every key.
func (r *Role) WritesAll() bool { return r.write.All() }

// ReadsAll reports whether the client may read every key.
func (r *Role) ReadsAll() bool { return r.read.All() }

// WritesSome reports whether there are keys that the client may write.
func (r *Role) WritesSome() bool { return len(r.write.List) > 0 }

// MayWrite reports whether the client may set and delete a key.
func (r *Role) MayWrite(key []byte) bool { return r.write.Contains(key) }

// MayRead reports whether the client may read a key, or all of a subtree.
func (r *Role) MayRead(spec []byte) bool { return r.read.Contains(spec) }

// MayHear reports whether the client may have every message that begins with a topic. Heartbeats are for everybody.
func (r *Role) MayHear(topic []byte) bool {
	return r.read.Contains(topic) || bytes.HasPrefix(topic, []byte(kvmsg.KeyHUGZ))
}

// Allow returns a *kvmsg.AccessError unless the client may do something with a key or, to read it, a subtree.
func (r *Role) Allow(verb kvmsg.Verb, key string) error {
	ok := false
	switch verb {
	case kvmsg.VerbRead:
		ok = r.MayRead([]byte(key))
	case kvmsg.VerbWrite:
		ok = r.MayWrite([]byte(key))
	case kvmsg.VerbAdmin:
		ok = r.admin
	}
	if ok {
		return nil
	}
	return &kvmsg.AccessError{Name: r.name, Verb: verb, Key: key}
}

// Equal reports whether two roles are the same. A nil *Role is that of a client that is not accepted.
func (r *Role) Equal(other *Role) bool {
	if r == nil || other == nil {
		return r == other
	}
	return r.name == other.name && r.admin == other.admin && r.limits == other.limits &&
		slices.Equal(r.read.List, other.read.List) && slices.Equal(r.write.List, other.write.List)
}
