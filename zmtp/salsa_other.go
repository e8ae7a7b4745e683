//go:build !amd64 || portable

package zmtp

// fastBoxes says that makeStream can be used.
const fastBoxes = false

func makeStream(*[streamSize]byte, *[16]uint32) { panic("zmtp: no AVX2 here") }

// bulk takes nothing off b.
func (p *poly1305) bulk(b []byte) []byte { return b }
