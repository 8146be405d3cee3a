package holdfast

import (
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
)

// generator is MT19937, seeded as Python seeds it with a text: a run draws the same numbers in every language. They are
// not secret.
type generator struct {
	state [624]uint32
	at    int
}

func newGenerator(seed string) *generator {
	hash := sha512.Sum512([]byte(seed))
	text := append([]byte(seed), hash[:]...)
	text = append(make([]byte, (4-len(text)%4)%4), text...)
	var key []uint32 // one big number in words of 32 bits, the least significant one first
	for end := len(text); end > 0; end -= 4 {
		key = append(key, binary.BigEndian.Uint32(text[end-4:end]))
	}
	g := &generator{at: 624}
	g.state[0] = 19650218
	for n := uint32(1); n < 624; n++ {
		g.state[n] = 1812433253*(g.state[n-1]^g.state[n-1]>>30) + n
	}
	i := 1
	for n := 0; n < 624 || n < len(key); n++ {
		at := n % len(key)
		g.state[i] = (g.state[i] ^ (g.state[i-1]^g.state[i-1]>>30)*1664525) + key[at] + uint32(at)
		i = g.next(i)
	}
	for n := 0; n < 623; n++ {
		g.state[i] = (g.state[i] ^ (g.state[i-1]^g.state[i-1]>>30)*1566083941) - uint32(i)
		i = g.next(i)
	}
	g.state[0] = 1 << 31
	return g
}

func (g *generator) next(i int) int {
	if i++; i == 624 {
		g.state[0] = g.state[623]
		return 1
	}
	return i
}

// draw returns the next 32 bits.
func (g *generator) draw() uint32 {
	if g.at == 624 {
		for n := range g.state {
			y := g.state[n]&(1<<31) | g.state[(n+1)%624]&(1<<31-1)
			g.state[n] = g.state[(n+397)%624] ^ y>>1 ^ y&1*0x9908b0df
		}
		g.at = 0
	}
	y := g.state[g.at]
	g.at++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// number returns a number in [0, 1).
func (g *generator) number() float64 {
	high, low := g.draw()>>5, g.draw()>>6
	return (float64(high)*(1<<26) + float64(low)) / (1 << 53)
}

// uuid returns a random UUID.
func (g *generator) uuid() string {
	var bits [16]byte
	for end := 16; end > 0; end -= 4 {
		binary.BigEndian.PutUint32(bits[end-4:], g.draw())
	}
	bits[6] = bits[6]&0x0f | 0x40
	bits[8] = bits[8]&0x3f | 0x80
	text := hex.EncodeToString(bits[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}
