//go:build !portable

package zmtp

import "golang.org/x/sys/cpu"

// What the machine can do. The second adds rotations, and registers.
var (
	fastBoxes   = cpu.X86.HasAVX2
	fasterBoxes = fastBoxes && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL
)

// makeStream writes the key stream of eight blocks of Salsa20, from the one
// that state counts. The count must be a multiple of eight. It is called with
// fastBoxes only.
func makeStream(out *[streamSize]byte, state *[16]uint32) {
	if fasterBoxes {
		keystream8VL(out, state)
	} else {
		keystream8(out, state)
	}
}

// keystream8 is makeStream with AVX2.
//
//go:noescape
func keystream8(out *[streamSize]byte, state *[16]uint32)

// keystream8VL is makeStream with AVX-512F and VL.
//
//go:noescape
func keystream8VL(out *[streamSize]byte, state *[16]uint32)
