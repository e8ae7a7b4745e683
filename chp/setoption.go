package chp

import (
	"slices"
	"strings"
	"time"

	"clustermap/internal/kvmsg"
)

// SetOption is a property of one update: see [WithTTL], [WithProperty],
// [WithProperties] and [WithLease].
type SetOption struct {
	name, value string
	props       Properties
	ttl         time.Duration
	lease       kvmsg.LeaseID
	kind        uint8 // optionProperty, optionTTL, optionProperties or optionLease
}

const (
	optionProperty = iota
	optionTTL
	optionProperties
	optionLease
)

// WithTTL makes the server delete the key a duration d after it received the update,
// unless another update of the key comes first. Watches report that deletion with
// CauseExpired, others with CauseDeleted. 0 means that the key does not expire;
// the maximum is ten years. The guide's C server supports whole seconds only, and reads
// 0.5 as no expiry. A server that has restarted, or taken over in a pair, deletes it
// later than that if it would not leave clients time to come back: see
// ServerOptions.ExpiryGrace.
func WithTTL(d time.Duration) SetOption { return SetOption{ttl: d, kind: optionTTL} }

// WithProperty adds a property to the update. All clients receive it
// ([Event.Properties], [Entry.Properties]). The name must not be empty or contain "=" or a newline; the
// value must not contain a newline. All properties of an update together have at most
// 65535 bytes. Names that begin with "x-" are the protocol's (see [Properties]).
func WithProperty(name, value string) SetOption {
	return SetOption{name: name, value: value, kind: optionProperty}
}

// WithProperties adds the properties of another update, such as an Event or an Entry that
// is copied to another server, without its time to live (see [WithTTL]) and without those of
// the protocol.
func WithProperties(p Properties) SetOption { return SetOption{props: p, kind: optionProperties} }

// appendOptions appends the options as properties, each "name=value" and a newline. It
// returns a *MessageError for options that servers refuse.
func appendOptions(dst []byte, opts []SetOption) ([]byte, error) {
	if len(opts) == 0 {
		return dst, nil
	}
	before := len(dst)
	for _, o := range opts {
		switch {
		case o.kind == optionProperties:
			dst = kvmsg.AppendUser(dst, o.props)
		case o.kind == optionLease:
			dst = kvmsg.AppendLease(dst, o.lease)
		case o.kind == optionProperty:
			var err error
			if strings.HasPrefix(o.name, kvmsg.Reserved) {
				return dst, kvmsg.ErrReservedProperty
			}
			if dst, err = kvmsg.AppendProperty(dst, o.name, o.value); err != nil {
				return dst, err
			}
		case o.ttl < 0 || o.ttl > kvmsg.MaxTTL:
			return dst, kvmsg.ErrTTL
		case o.ttl > 0:
			dst = kvmsg.AppendTTL(dst, o.ttl)
		}
	}
	return dst, kvmsg.CheckProperties(dst[before:])
}

// leased reports whether options attach a key to a lease.
func leased(opts []SetOption) bool {
	return slices.ContainsFunc(opts, func(o SetOption) bool { return o.kind == optionLease })
}
