package kvmsg

import "strconv"

// Reason says which rule of the protocol a refused message broke. Callers keep
// one counter a reason; the set is closed.
type Reason uint8

// The reasons for which a message is refused.
const (
	ReasonFrameCount       Reason = iota // not five well-formed frames
	ReasonKey                            // empty key, longer than 255 bytes, or with a NUL in it
	ReasonReservedKey                    // KTHXBAI, or a key that begins with HUGZ
	ReasonSequence                       // the sequence frame is not eight bytes, or the order number in it does not rise
	ReasonUUID                           // the UUID frame is neither empty nor 16 bytes
	ReasonProperties                     // the properties are not name=value lines, or too many bytes
	ReasonTTL                            // the ttl property is not seconds from 0 to ten years
	ReasonValueTooLarge                  // the value exceeds the limit of this side
	ReasonMapFull                        // the map would exceed ServerOptions.MaxMapBytes
	ReasonFormerConnection               // came late, over a connection that its client had replaced by another

	// ReasonCount is how many there are.
	ReasonCount = int(ReasonFormerConnection) + 1
)

var reasonNames = [ReasonCount]string{
	"frame count", "key", "reserved key", "sequence", "UUID", "properties", "ttl", "value too large", "map full",
	"former connection",
}

// String returns the reason in words, as it appears in errors and statistics.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// MessageError tells that a key-value message was refused and why. Sending the
// same message again fails in the same way, unless the map was full.
//
// errors.Is(err, &MessageError{Reason: r}) is true for every refusal with
// reason r.
type MessageError struct {
	Reason Reason // the rule that was broken
	Detail string // the same in a few words; for people
}

// Error implements error.
func (e *MessageError) Error() string {
	if e.Detail == "" {
		return "chp: message refused: " + e.Reason.String()
	}
	return "chp: message refused: " + e.Reason.String() + ": " + e.Detail
}

// Is makes a MessageError without Detail match every one of the same reason.
func (e *MessageError) Is(target error) bool {
	t, ok := target.(*MessageError)
	return ok && t.Reason == e.Reason && (t.Detail == "" || t.Detail == e.Detail)
}

// The refusals are values made once: a peer that sends nothing but rubbish must
// not make this side allocate.
var (
	errFrameCount      = &MessageError{ReasonFrameCount, "want key, sequence, UUID, properties, value"}
	ErrKeyEmpty        = &MessageError{ReasonKey, "empty"}
	ErrKeyLong         = &MessageError{ReasonKey, "longer than 255 bytes"}
	errKeyNUL          = &MessageError{ReasonKey, "contains NUL"}
	ErrKeyReserved     = &MessageError{ReasonReservedKey, "KTHXBAI and HUGZ belong to the protocol"}
	ErrSequence        = &MessageError{ReasonSequence, "want 8 bytes"}
	ErrOrder           = &MessageError{ReasonSequence, "the client numbers its updates, and this is out of order"}
	errUUID            = &MessageError{ReasonUUID, "want 0 or 16 bytes"}
	errPropertyLine    = &MessageError{ReasonProperties, "want lines of the form name=value"}
	errPropertiesLarge = &MessageError{ReasonProperties, "longer than 64 KiB"}
	ErrTTL             = &MessageError{ReasonTTL, "want decimal seconds from 0 to ten years"}
	ErrValueTooLarge   = &MessageError{ReasonValueTooLarge, "over the limit of this side"}
	ErrMapFull         = &MessageError{ReasonMapFull, "delete something first"}
)
