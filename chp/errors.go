package chp

import "clustermap/internal/kvmsg"

// Reason is the rule of the protocol that a refused message violates. The set is
// closed. String returns the reason in words, as in errors and statistics.
type Reason = kvmsg.Reason

// Reasons for refusing a message.
const (
	ReasonFrameCount       Reason = kvmsg.ReasonFrameCount       // not five well-formed frames
	ReasonKey              Reason = kvmsg.ReasonKey              // the key is empty, longer than 255 bytes, or contains NUL
	ReasonReservedKey      Reason = kvmsg.ReasonReservedKey      // the key is KTHXBAI or begins with HUGZ, or with $lease/ and a value is set
	ReasonSequence         Reason = kvmsg.ReasonSequence         // the sequence frame is not eight bytes, or its order number does not increase
	ReasonUUID             Reason = kvmsg.ReasonUUID             // the UUID frame is neither empty nor 16 bytes
	ReasonProperties       Reason = kvmsg.ReasonProperties       // the properties are not name=value lines, or are too long
	ReasonTTL              Reason = kvmsg.ReasonTTL              // the ttl property is not a number of seconds from 0 to ten years
	ReasonValueTooLarge    Reason = kvmsg.ReasonValueTooLarge    // the value exceeds the limit of this client or server
	ReasonMapFull          Reason = kvmsg.ReasonMapFull          // the map would exceed ServerOptions.MaxMapBytes
	ReasonFormerConnection Reason = kvmsg.ReasonFormerConnection // it arrived on a connection that its client had replaced by another
	ReasonAccess           Reason = kvmsg.ReasonAccess           // its client may not do that: see AccessError
	ReasonLimit            Reason = kvmsg.ReasonLimit            // its client has as many keys or bytes as it may: see Limits
)

// MessageError reports that a key-value message was refused, and why. Sending the same
// message again fails in the same way, unless the map was full.
//
// The field Reason is the rule that was violated; Detail, a string, describes it.
// errors.Is(err, &MessageError{Reason: r}) reports whether err is a refusal with reason
// r.
type MessageError = kvmsg.MessageError
