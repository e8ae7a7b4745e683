package wire

import "errors"

// ErrStandby is that of package chp, which documents it.
var ErrStandby = errors.New("chp: the server is not the active one of its pair")
