// Package closed has the errors that packages return after Close.
package closed

import "net"

// Error returns an error with a text that matches net.ErrClosed (errors.Is). The text of
// net.ErrClosed is not part of it, because that reads like a fault of the network.
func Error(text string) error { return &failure{text} }

type failure struct{ text string }

func (f *failure) Error() string { return f.text }

// Unwrap returns net.ErrClosed.
func (f *failure) Unwrap() error { return net.ErrClosed }

// CHP is chp.ErrClosed, which the packages below chp return, too.
var CHP = Error("chp: closed")
