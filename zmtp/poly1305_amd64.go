//go:build !portable

package zmtp

import "math/bits"

// limbs is a number modulo 2^130-5 in five limbs of about 26 bits.
type limbs [5]uint64

const limbMask = 1<<26 - 1

// quads holds the limbs of four numbers, for the registers of AVX2: of each limb
// the four numbers' together.
type quads [5][4]uint64

// multiplier is four numbers to multiply quads with: the limbs, and the upper
// four of them times five.
type multiplier [9][4]uint64

// bulkLeast is from what size on four blocks at once are faster, with what has
// to be computed before and after.
const bulkLeast = 1280

// lanes is for which of four blocks each number of quads stands, and so
// which power of r it takes in the end: 4, 2, 3, 1.
var lanes = [4]int{3, 1, 2, 0}

// bulk takes whole groups of four blocks off b, if that is worth it. It comes
// before all other blocks.
func (p *poly1305) bulk(b []byte) []byte {
	if len(b) < bulkLeast || !fastBoxes {
		return b
	}
	var power [4]limbs // r to the power of 1 to 4
	power[0] = limbs{
		p.r[0] & limbMask,
		p.r[0] >> 26 & limbMask,
		(p.r[0]>>52 | p.r[1]<<12) & limbMask,
		p.r[1] >> 14 & limbMask,
		p.r[1] >> 40,
	}
	power[1] = power[0].times(&power[0])
	power[2] = power[1].times(&power[0])
	power[3] = power[1].times(&power[1])
	var all, last multiplier
	for i := range 4 {
		all.set(i, &power[3])
		last.set(i, &power[lanes[i]])
	}
	var acc quads
	groups := len(b) / 64
	poly1305x4(&acc, &all, &b[0], groups)
	poly1305mul4(&acc, &last)

	var sum limbs
	for i := range sum {
		sum[i] = acc[i][0] + acc[i][1] + acc[i][2] + acc[i][3]
	}
	sum.carry()
	// Limbs may still have a bit above the 26th, so they are added.
	h0, c := bits.Add64(sum[0]+sum[1]<<26, sum[2]<<52, 0)
	h1, c := bits.Add64(sum[2]>>12+sum[3]<<14, sum[4]<<40, c)
	p.h = [3]uint64{h0, h1, sum[4]>>24 + c}
	return b[64*groups:]
}

// set puts the number x into place i.
func (m *multiplier) set(i int, x *limbs) {
	m[0][i] = x[0]
	for j := 1; j < 5; j++ {
		m[j][i], m[4+j][i] = x[j], 5*x[j]
	}
}

// times returns x y.
func (x *limbs) times(y *limbs) limbs {
	s1, s2, s3, s4 := 5*y[1], 5*y[2], 5*y[3], 5*y[4]
	z := limbs{
		x[0]*y[0] + x[1]*s4 + x[2]*s3 + x[3]*s2 + x[4]*s1,
		x[0]*y[1] + x[1]*y[0] + x[2]*s4 + x[3]*s3 + x[4]*s2,
		x[0]*y[2] + x[1]*y[1] + x[2]*y[0] + x[3]*s4 + x[4]*s3,
		x[0]*y[3] + x[1]*y[2] + x[2]*y[1] + x[3]*y[0] + x[4]*s4,
		x[0]*y[4] + x[1]*y[3] + x[2]*y[2] + x[3]*y[1] + x[4]*y[0],
	}
	z.carry()
	return z
}

// carry leaves hardly more than 26 bits in each limb.
func (x *limbs) carry() {
	for range 2 {
		for i := range 4 {
			x[i+1] += x[i] >> 26
			x[i] &= limbMask
		}
		x[0] += x[4] >> 26 * 5
		x[4] &= limbMask
	}
}

//go:noescape
func poly1305x4(acc *quads, table *multiplier, msg *byte, groups int)

//go:noescape
func poly1305mul4(acc *quads, table *multiplier)
