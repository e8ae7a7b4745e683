package kvmsg

import "strconv"

// Reason is the rule of the protocol that a refused message violates. The set is
// closed.
type Reason uint8

// Reasons for refusing a message.
const (
	ReasonFrameCount       Reason = iota // not five well-formed frames
	ReasonKey                            // the key is empty, longer than 255 bytes, or contains NUL
	ReasonReservedKey                    // the key is KTHXBAI or begins with HUGZ, or with $lease/ and a value is set
	ReasonSequence                       // the sequence frame is not eight bytes, or its order number does not increase
	ReasonUUID                           // the UUID frame is neither empty nor 16 bytes
	ReasonProperties                     // the properties are not name=value lines, or are too long
	ReasonTTL                            // the ttl property is not a number of seconds from 0 to ten years
	ReasonValueTooLarge                  // the value exceeds the limit of this client or server
	ReasonMapFull                        // the map would exceed ServerOptions.MaxMapBytes
	ReasonFormerConnection               // it arrived on a connection that its client had replaced by another
	ReasonAccess                         // its client may not do that: see AccessError
	ReasonLimit                          // its client has as many keys or bytes as it may: see Limits

	// ReasonCount is the number of reasons.
	ReasonCount = int(ReasonLimit) + 1
)

var reasonNames = [ReasonCount]string{
	"frame count", "key", "reserved key", "sequence", "UUID", "properties", "ttl", "value too large", "map full",
	"former connection", "access denied", "client limit",
}

// String returns the reason in words, as in errors and statistics.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// MarshalText returns the text of String.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MessageError reports that a key-value message was refused, and why. Sending the same
// message again fails in the same way, unless the map was full.
//
// errors.Is(err, &MessageError{Reason: r}) reports whether err is a refusal with reason
// r.
type MessageError struct {
	Reason Reason // the rule that was violated
	Detail string // a short description
}

// Error implements error.
func (e *MessageError) Error() string {
	if e.Detail == "" {
		return "chp: message refused: " + e.Reason.String()
	}
	return "chp: message refused: " + e.Reason.String() + ": " + e.Detail
}

// Is reports whether target is a MessageError with the same reason. A target without
// Detail matches every Detail.
func (e *MessageError) Is(target error) bool {
	t, ok := target.(*MessageError)
	return ok && t.Reason == e.Reason && (t.Detail == "" || t.Detail == e.Detail)
}

// The refusals are allocated once: a peer that sends invalid messages must not make
// this side allocate.
var (
	errFrameCount       = &MessageError{ReasonFrameCount, "want key, sequence, UUID, properties, value"}
	ErrKeyEmpty         = &MessageError{ReasonKey, "empty"}
	errKeyLong          = &MessageError{ReasonKey, "longer than 255 bytes"}
	errKeyNUL           = &MessageError{ReasonKey, "contains NUL"}
	ErrKeyReserved      = &MessageError{ReasonReservedKey, "KTHXBAI and HUGZ belong to the protocol"}
	ErrKeyLease         = &MessageError{ReasonReservedKey, "keys that begin with $lease/ are set by granting leases"}
	ErrSequence         = &MessageError{ReasonSequence, "want 8 bytes"}
	ErrOrder            = &MessageError{ReasonSequence, "the client numbers its updates, and this is out of order"}
	errUUID             = &MessageError{ReasonUUID, "want 0 or 16 bytes"}
	errPropertyLine     = &MessageError{ReasonProperties, "want lines of the form name=value"}
	ErrReservedProperty = &MessageError{ReasonProperties, "names that begin with x- belong to the protocol"}
	errPropertiesLarge  = &MessageError{ReasonProperties, "longer than 64 KiB"}
	ErrTTL              = &MessageError{ReasonTTL, "want decimal seconds from 0 to ten years"}
	ErrValueTooLarge    = &MessageError{ReasonValueTooLarge, "over the limit of this side"}
	ErrLease            = &MessageError{ReasonProperties, "the lease of the key is not there"}
	ErrMapFull          = &MessageError{ReasonMapFull, "delete something first"}
	ErrAccess           = &MessageError{ReasonAccess, ""}
	ErrLimit            = &MessageError{ReasonLimit, "the client may add no more; delete something first"}
)
