package chp

import (
	"errors"
	"fmt"
	"strings"

	"clustermap/chp/internal/follow"
	"clustermap/chp/internal/ledger"
	"clustermap/chp/internal/subtree"
	"clustermap/chp/internal/watch"
	"clustermap/chp/internal/wire"
	"clustermap/internal/closed"
	"clustermap/internal/option"
)

// Conditions. Compare with errors.Is.
var (
	// ErrClosed is returned by all methods of a closed client, server or watch,
	// including calls that were blocked when it was closed. errors.Is(ErrClosed,
	// net.ErrClosed) is true.
	ErrClosed = closed.CHP

	// ErrServing is returned by Server.Serve if another call is serving.
	ErrServing = errors.New("chp: the server is already serving")

	// ErrLagged ends a watch whose queue overflowed because events were not read fast
	// enough. Events were lost; start a new watch to continue from a complete state.
	ErrLagged = watch.ErrLagged

	// ErrUncertain is returned for an update of which the client cannot know whether it
	// was applied. With servers of this package that happens only when the map that the
	// update was sent to is gone: the client follows another server, or one that has
	// restarted without its map. In rare cases the server no longer knows: after a
	// restart, if it had just refused updates, or if 65,536 other clients have written
	// since. With servers of other implementations it happens when a connection breaks
	// before the update came back, or when the server has skipped it. The client does
	// not send the update again. Setting the same value again is harmless if no one
	// else writes the key.
	ErrUncertain = ledger.ErrUncertain

	// ErrUnreachable is reported when a connection to a server could not be established.
	// The error also wraps the reason, such as syscall.ECONNREFUSED.
	ErrUnreachable = follow.ErrUnreachable

	// ErrDisconnected is reported when a connection to a server ended. The error also
	// wraps the reason.
	ErrDisconnected = follow.ErrDisconnected

	// ErrSilent is reported when the client leaves a server that has sent nothing for
	// ClientOptions.SyncTimeout or HeartbeatTimeout.
	ErrSilent = follow.ErrSilent

	// ErrMapTooLarge is reported when the client leaves a server whose map, or the part in
	// ClientOptions.Subtrees, is larger than ClientOptions.MaxMapBytes.
	ErrMapTooLarge = follow.ErrMapTooLarge

	// ErrStandby is reported to ClientOptions.OnFailure when a server is not the active
	// one of its pair. The client tries the next server at once, and this one again
	// after a fraction of a second. Server.Set and the other methods that write
	// return it while the server is not the active one.
	ErrStandby = wire.ErrStandby

	// ErrRefused is returned for an update that the server refused and did not apply.
	// The error also wraps a [*MessageError] with the reason, unless the connection
	// broke before the reason arrived.
	ErrRefused = ledger.ErrRefused

	// ErrOutsideSubtrees is returned for a key or subtree outside of
	// ClientOptions.Subtrees, which this client does not replicate. The text of the error
	// names it. For a key outside of a View, errors.Is reports an *OutsideViewError as this
	// error.
	ErrOutsideSubtrees = errors.New("chp: outside of the client's subtrees")

	// ErrEmptyValue is returned by Set and SetSync for an empty value, which in CHP
	// deletes the key. Use Delete.
	ErrEmptyValue = errors.New("chp: an empty value deletes the key; use Delete for that")
)

// outsideSubtrees returns ErrOutsideSubtrees for a valid key or subtree, of which it keeps a copy:
// otherwise a caller of SetSync would have to allocate each key.
func outsideSubtrees(key string) error {
	return fmt.Errorf("%w: %q", ErrOutsideSubtrees, strings.Clone(key))
}

// CollectorError reports that the collector of a server does not accept this client,
// although the client receives the server's snapshots and updates: the collector's
// socket is of another type or has another security mechanism, it denies the client's
// credentials, or it does not speak ZMTP. Queued updates fail with this error and are
// not sent; the client continues to read, and the next update tries again.
//
// Its fields are Server, as ClientOptions names it, and Err.
type CollectorError = follow.CollectorError

// MixedError reports that the connections of a client to one server have reached
// different ones, as can happen if several servers are behind one name, or behind a
// balancer of connections. The client follows none of them and tries again. Servers that
// announce no identity, of earlier versions and of other implementations, cannot be told
// apart from each other.
//
// Its fields are strings: Server, as ClientOptions names it, and Remote and Other, the
// addresses that two of the connections have reached. They can be equal, behind a balancer.
type MixedError = follow.MixedError

// GapError reports that updates between two sequences did not arrive. The client then
// fetches a new snapshot. Its fields are After, the last sequence that arrived, and Next,
// the one that showed the gap.
type GapError = follow.GapError

// SubtreeError reports a malformed subtree. Valid are "", a subtree such as "/a/b/",
// and a single key. Retrying with the same text fails again.
//
// Its fields Subtree and Reason, both strings, are that text and what is wrong with it.
type SubtreeError = subtree.Error

// OptionError reports an invalid field of ClientOptions or ServerOptions. NewClient and
// NewServer join the errors of all invalid fields.
// The packages of this module share the type; its field Package names the one.
type OptionError = option.Error
