package zmtp

import (
	"cmp"
	"strings"
)

// Codes of protocol errors, as reported by libzmq's monitor for failed
// handshakes (ZMQ_PROTOCOL_ERROR_*). Codes from 0x20000000 concern replies of a
// ZAP handler.
const (
	CodeUnspecified        = 0x10000000
	CodeUnexpectedCommand  = 0x10000001
	CodeInvalidSequence    = 0x10000002
	CodeKeyExchange        = 0x10000003
	CodeMalformedCommand   = 0x10000011
	CodeMalformedMessage   = 0x10000012
	CodeMalformedHello     = 0x10000013
	CodeMalformedInitiate  = 0x10000014
	CodeMalformedError     = 0x10000015
	CodeMalformedReady     = 0x10000016
	CodeMalformedWelcome   = 0x10000017
	CodeInvalidMetadata    = 0x10000018
	CodeCryptographic      = 0x11000001
	CodeMechanismMismatch  = 0x11000002
	CodeZAPUnspecified     = 0x20000000
	CodeZAPMalformedReply  = 0x20000001
	CodeZAPBadRequestID    = 0x20000002
	CodeZAPBadVersion      = 0x20000003
	CodeZAPInvalidStatus   = 0x20000004
	CodeZAPInvalidMetadata = 0x20000005
)

// Code returns libzmq's code for the error: the Code constant that fits best.
func (e *ProtocolError) Code() uint32 {
	switch e.Err {
	case ErrMechanism:
		return CodeMechanismMismatch
	case ErrCryptographic:
		return CodeCryptographic
	case ErrIncompatible:
		return CodeInvalidMetadata
	case ErrMalformed:
		return e.malformedCode()
	}
	return CodeUnspecified
}

// malformedCode derives the code from the Reason, as set by this package.
func (e *ProtocolError) malformedCode() uint32 {
	switch {
	case e.Op == "metadata", strings.HasPrefix(e.Reason, "Identity "):
		return CodeInvalidMetadata
	case strings.HasPrefix(e.Reason, "command that is not"), strings.HasPrefix(e.Reason, "message before"), strings.Contains(e.Reason, " instead of "):
		return CodeUnexpectedCommand
	}
	code, ok := malformedCodes[e.Reason[strings.LastIndexByte(e.Reason, ' ')+1:]]
	if !ok && (e.Op == "command" || e.Op == "handshake") {
		return CodeMalformedCommand
	}
	return cmp.Or(code, CodeUnspecified)
}

// malformedCodes holds the codes of the commands that end a Reason.
var malformedCodes = map[string]uint32{
	commandHello: CodeMalformedHello, commandWelcome: CodeMalformedWelcome, commandInitiate: CodeMalformedInitiate,
	CommandReady: CodeMalformedReady, CommandError: CodeMalformedError, commandMessage: CodeMalformedMessage,
}
