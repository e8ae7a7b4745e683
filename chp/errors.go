package chp

import "clustermap/internal/kvmsg"

// Reason says which rule of the protocol a refused message broke. Callers keep
// one counter a reason; the set is closed. String returns the reason in words, as
// it appears in errors and statistics.
type Reason = kvmsg.Reason

// The reasons for which a message is refused.
const (
	ReasonFrameCount       Reason = kvmsg.ReasonFrameCount       // not five well-formed frames
	ReasonKey              Reason = kvmsg.ReasonKey              // empty key, longer than 255 bytes, or with a NUL in it
	ReasonReservedKey      Reason = kvmsg.ReasonReservedKey      // KTHXBAI, or a key that begins with HUGZ
	ReasonSequence         Reason = kvmsg.ReasonSequence         // the sequence frame is not eight bytes, or the order number in it does not rise
	ReasonUUID             Reason = kvmsg.ReasonUUID             // the UUID frame is neither empty nor 16 bytes
	ReasonProperties       Reason = kvmsg.ReasonProperties       // the properties are not name=value lines, or too many bytes
	ReasonTTL              Reason = kvmsg.ReasonTTL              // the ttl property is not seconds from 0 to ten years
	ReasonValueTooLarge    Reason = kvmsg.ReasonValueTooLarge    // the value exceeds the limit of this side
	ReasonMapFull          Reason = kvmsg.ReasonMapFull          // the map would exceed ServerOptions.MaxMapBytes
	ReasonFormerConnection Reason = kvmsg.ReasonFormerConnection // came late, over a connection that its client had replaced by another
)

// MessageError tells that a key-value message was refused and why. Sending the
// same message again fails in the same way, unless the map was full.
//
// Its field Reason is the rule that was broken; Detail, a string, says the same in a
// few words, for people. The error is a *MessageError, and
// errors.Is(err, &MessageError{Reason: r}) is true for every refusal with reason r.
type MessageError = kvmsg.MessageError
