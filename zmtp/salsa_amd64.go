package zmtp

import "golang.org/x/sys/cpu"

// fastBoxes says that keystream8 can be used.
var fastBoxes = cpu.X86.HasAVX2

// keystream8 writes the key stream of eight blocks of Salsa20, from the one
// that state counts. The count must be a multiple of eight. It needs AVX2.
//
//go:noescape
func keystream8(out *[streamSize]byte, state *[16]uint32)

// bulk takes nothing off b.
func (p *poly1305) bulk(b []byte) []byte { return b }
