package kvmsg

import (
	"encoding/hex"
	"time"
)

// PropertyLease is the property of an update of a transaction that attaches its key to a lease: the
// lease's identity. LeasePrefix begins the keys of the leases themselves; the identity ends them.
const (
	PropertyLease = Reserved + "lease"
	LeasePrefix   = "$lease/"
)

// LeaseID identifies a lease: 16 random bytes. Its text has hexadecimal digits.
type LeaseID [16]byte

const leaseDigits = 2 * len(LeaseID{})

// ParseLeaseID parses the text of an identity, with digits in lower case.
func ParseLeaseID(text []byte) (id LeaseID, ok bool) {
	if len(text) != leaseDigits {
		return id, false
	}
	for _, c := range text {
		if c >= 'A' && c <= 'F' {
			return id, false // it would not be the only text of the identity
		}
	}
	_, err := hex.Decode(id[:], text)
	return id, err == nil
}

// AppendLeaseKey appends the key of a lease.
func AppendLeaseKey(dst []byte, id LeaseID) []byte {
	return hex.AppendEncode(append(dst, LeasePrefix...), id[:])
}

// AppendLease appends the property line that attaches a key to a lease.
func AppendLease(dst []byte, id LeaseID) []byte {
	return append(hex.AppendEncode(append(dst, PropertyLease+"="...), id[:]), '\n')
}

// LeaseOfKey returns the lease whose key this is. ok is false if it is that of none.
func LeaseOfKey(key []byte) (id LeaseID, ok bool) {
	if !IsHidden(key) {
		return id, false
	}
	return ParseLeaseID(key[len(LeasePrefix):])
}

// LeaseOf returns the lease to which a record with a tag attaches its key. ok is false if it is none.
func LeaseOf(r Record, tag uint64) (id LeaseID, ok bool) {
	if tag&TagProperties == 0 || tag&TagDelete != 0 {
		return id, false
	}
	text, ok := Property(r.Props(), PropertyLease)
	if !ok {
		return id, false
	}
	return ParseLeaseID(text)
}

// IsHidden reports whether a key is one of the map's own: it is shown only to those who ask for it.
func IsHidden(key []byte) bool {
	return len(key) >= len(LeasePrefix) && key[0] == LeasePrefix[0] && string(key[:len(LeasePrefix)]) == LeasePrefix
}

// mayHide reports whether a message may be an update of a hidden key. Only servers, and requests, may set
// one: a lease without a time to live would never end. Everybody may delete it, and so ends a lease.
func mayHide(key, props, value []byte, from Origin) bool {
	if len(value) == 0 || from == FromServer {
		return true
	}
	_, ok := LeaseOfKey(key)
	_, attached := Property(props, PropertyLease)
	ttl := LeaseTime(value)
	return ok && from == FromRequest && !attached && ttl > 0 && TTLOf(props) == ttl
}

// ValidUpdate is [ValidKey] for a key that an update sets, or deletes if value is empty.
func ValidUpdate(key, value []byte) error {
	if err := ValidKey(key); err != nil {
		return err
	}
	if len(value) > 0 && IsHidden(key) {
		return ErrKeyLease
	}
	return nil
}

// AppendLeaseTime appends the value of a lease's key: its time to live in seconds, in decimal. The
// property of that name is the remaining time in copies.
func AppendLeaseTime(dst []byte, ttl time.Duration) []byte { return appendSeconds(dst, ttl) }

// LeaseTime parses the value of a lease's key. It returns 0 if that is malformed.
func LeaseTime(value []byte) time.Duration {
	ttl, _ := ParseTTL(value)
	return ttl
}
