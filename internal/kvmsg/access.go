package kvmsg

import (
	"fmt"
	"strconv"
)

// Verb is what a client may do, or not.
type Verb uint8

// The verbs.
const (
	VerbRead  Verb = iota + 1 // get a key, as it is, was and changes; know whether a condition on it holds
	VerbWrite                 // set it, delete it
	VerbAdmin                 // what administrators do
)

// String returns read, write or administer.
func (v Verb) String() string {
	switch v {
	case VerbRead:
		return "read"
	case VerbWrite:
		return "write"
	case VerbAdmin:
		return "administer"
	}
	return "verb " + strconv.Itoa(int(v))
}

// MarshalText returns the text of String.
func (v Verb) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// AccessError reports that a client may not do what it has asked for.
type AccessError struct {
	Name string // as which the server knows the client; "" if it did not say
	Verb Verb
	Key  string // or the subtree; "" is the whole map, or unknown
}

// Error implements error.
func (e *AccessError) Error() string {
	name := "this client"
	if e.Name != "" {
		name = strconv.Quote(e.Name)
	}
	switch {
	case e.Verb == VerbAdmin:
		return "chp: access denied: " + name + " is not an administrator"
	case e.Key != "":
		return fmt.Sprintf("chp: access denied: %s may not %v %q", name, e.Verb, e.Key)
	case e.Verb == VerbRead:
		return "chp: access denied: " + name + " may not read the whole map"
	}
	return "chp: access denied: " + name + " may not " + e.Verb.String() + " that"
}

// Unwrap returns a *MessageError with ReasonAccess.
func (e *AccessError) Unwrap() error { return ErrAccess }
