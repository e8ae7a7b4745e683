//go:build !unix

package link

import (
	"math"
	"net"
)

// Descriptors returns a number that is never reached: these systems have no such limit.
func Descriptors() int { return math.MaxInt32 }

// Descriptor returns -1: the numbers of these systems tell nothing.
func Descriptor(net.Conn) int { return -1 }
