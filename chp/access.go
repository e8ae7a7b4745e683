package chp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"clustermap/chp/internal/rights"
	"clustermap/internal/kvmsg"
	"clustermap/sockets"
)

// Access says who the clients of a server are, and what each may do: see ServerOptions.Access. Package
// clustermap/chp/access has one that reads a file. All methods must be safe for concurrent use.
//
// An Access may also have a method Roles() []*Role, which returns all roles that Role can return now. Then the server counts once, and not for
// each of them, what is in the parts of the map that have limits.
type Access interface {
	// Authenticate decides whether a client is accepted, as a [sockets.Authenticator]. With NULL, where
	// clients prove nothing, it may accept anonymous ones. What Role has to know of a client it returns
	// as its ID and Metadata, which no client can set.
	Authenticate(ctx context.Context, r sockets.AuthRequest) (sockets.User, error)

	// Role returns what a client that was accepted may do now, or nil if it may do nothing and
	// the server must disconnect it. It must not block.
	Role(client *sockets.Peer) *Role

	// Changed returns a channel that is closed when Role may return something else. Then the server
	// disconnects the clients whose roles have changed. Those that are still accepted
	// connect again.
	Changed() <-chan struct{}
}

// Role is what a client may do: see [NewRole]. It is immutable.
//
// Name, Admin and Limits return what it was made of, Reads and Writes its subtrees and keys without those that
// others cover. Allow returns nil, or an [*AccessError] if the client may not do something with a key:
//
//	func (r *Role) Allow(verb Verb, key string) error
type Role = rights.Role

// RoleOptions are what a client may do.
type RoleOptions struct {
	Name string // of the client, for logs and in Properties.Stamped

	// Read and Write are the parts of the map that the client may read, and write: "" for the
	// whole map, a subtree such as "/a/b/", or in Write a single key. What ends with a slash is a
	// subtree: "/a/" does not cover "/ab/c", nor the key "/a".
	//
	// Reading is to get a snapshot and updates, versions of a key, and to know whether a condition
	// on it holds. Writing is to set and to delete.
	Read, Write []string

	// Admin makes the client an administrator: it may ask for the status, make the server hand
	// over, be promoted and read its files again, list and disconnect clients, and see which keys
	// are updated most, whatever it may read.
	Admin bool

	// Limits bound what the client may send.
	Limits Limits
}

// Limits bound what a client sends over all of its connections: Updates, an int, is the number of updates a second, and Bytes, an
// int64, their bytes a second; 0 means no limit, and the least others are 1,000 and 64 KiB. A client that sends more is not read from for as long, and waits. Others do not.
//
// Keys and Map, both int64, bound what there is in the parts of the map that the client may write, whoever has set it: so many keys, and so many
// bytes, counted as for ServerOptions.MaxMapBytes. As long as there is as much, an update of the client that would add to it is refused with
// ReasonLimit; deletions are not, nor what makes no key larger. Others are not concerned.
type Limits = rights.Limits

// NewRole returns a role, or a [*RoleError].
func NewRole(o RoleOptions) (*Role, error) {
	return rights.NewRole(o.Name, o.Read, o.Write, o.Admin, o.Limits)
}

// RoleError reports that nobody can have a right. Its fields are Verb; Subtree, to which the right would be; and
// Reason, why not.
type RoleError = rights.RoleError

// AccessError reports that a client may not do what it has asked for. It wraps a [*MessageError] with ReasonAccess,
// and for an update ErrRefused wraps it. Its fields are Name, by which the server knows the client; Verb; and Key, which is also a
// subtree: "" if it is the whole map, or unknown.
type AccessError = kvmsg.AccessError

// deniedKey adds the key to the error of an update that the client may not make: of that the server says only which
// update it is.
func deniedKey(err error, key string) error {
	if why, ok := errors.AsType[*AccessError](err); ok && why.Key == "" {
		err = fmt.Errorf("%w: %w", ErrRefused, &AccessError{Name: why.Name, Verb: why.Verb, Key: strings.Clone(key)})
	}
	return err
}

// Verb is what a client may do, or not. String returns read, write or administer.
type Verb = kvmsg.Verb

// Verbs.
const (
	VerbRead  Verb = kvmsg.VerbRead  // get a key, as it is, was and changes; know whether a condition on it holds
	VerbWrite Verb = kvmsg.VerbWrite // set it, delete it
	VerbAdmin Verb = kvmsg.VerbAdmin // what administrators do
)
