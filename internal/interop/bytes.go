package interop

import (
	"cmp"
	"crypto/sha256"
	"crypto/sha3"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
)

// Received is the answer to zmq_peer.py's "recv": the frames of each message.
type Received struct {
	Messages [][]Frame `json:"messages"`
}

// Frame describes a frame by its size and hash. Bytes is nil if the frame has more
// than 256 bytes. Two descriptions of the same bytes are deeply equal.
type Frame struct {
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
	Bytes  []byte `json:"bytes"`
}

// shown is the maximum size of a frame whose bytes the programs report.
const shown = 256

// Describe returns the description that "recv" reports for a frame with these bytes.
func Describe(bytes []byte) Frame {
	sum := sha256.Sum256(bytes)
	f := Frame{Size: len(bytes), SHA256: hex.EncodeToString(sum[:])}
	if len(bytes) <= shown {
		f.Bytes = append([]byte{}, bytes...)
	}
	return f
}

// DescribeAll calls Describe for each frame of a message.
func DescribeAll(frames [][]byte) []Frame {
	all := make([]Frame, len(frames))
	for i, f := range frames {
		all[i] = Describe(f)
	}
	return all
}

// Pattern generates size bytes that depend only on the three numbers. The programs
// generate the same bytes, so that large frames need not pass through JSON.
func Pattern(seed, message, frame, size int) []byte {
	h := sha3.NewSHAKE128()
	fmt.Fprintf(h, "%d/%d/%d", seed, message, frame)
	bytes := make([]byte, size)
	h.Read(bytes)
	return bytes
}

// Frames returns the i-th message that "send" generates with the given seed and
// sizes, without the frames of its head.
func Frames(seed, i int, sizes []int) [][]byte {
	frames := make([][]byte, len(sizes))
	for j, n := range sizes {
		frames[j] = Pattern(seed, i, j, n)
	}
	return frames
}

// Digest returns the clone programs' answer to "digest" for the given pairs, in any
// order.
func Digest(pairs iter.Seq2[[]byte, []byte]) Map {
	type pair struct{ key, value string }
	var all []pair
	for k, v := range pairs {
		all = append(all, pair{string(k), string(v)})
	}
	slices.SortFunc(all, func(a, b pair) int { return cmp.Compare(a.key, b.key) })
	h := sha256.New()
	var size [8]byte
	for _, p := range all {
		for _, s := range []string{p.key, p.value} {
			binary.BigEndian.PutUint64(size[:], uint64(len(s)))
			h.Write(size[:])
			h.Write([]byte(s))
		}
	}
	return Map{Count: len(all), SHA256: hex.EncodeToString(h.Sum(nil))}
}

// Map describes a whole map. The clone programs answer "digest" with a Map and their
// sequence.
type Map struct {
	Count  int    `json:"count"`
	SHA256 string `json:"sha256"`
}

// Pair is one entry of the answer to "dump". clone_client.py fills in key and
// value only. TTL is the time of expiry in milliseconds since 1970, or 0.
type Pair struct {
	Key        []byte `json:"key"`
	Value      []byte `json:"value"`
	Sequence   int64  `json:"sequence"`
	UUID       []byte `json:"uuid"`
	Properties []byte `json:"properties"`
	TTL        int64  `json:"ttl"`
}

// Dump is the clone programs' answer to "dump". State is the state of the client.
type Dump struct {
	Sequence int64  `json:"sequence"`
	State    string `json:"state"`
	Pairs    []Pair `json:"pairs"`
}

// Values returns the pairs as a map from key to value.
func (d Dump) Values() map[string]string {
	values := make(map[string]string, len(d.Pairs))
	for _, p := range d.Pairs {
		values[string(p.Key)] = string(p.Value)
	}
	return values
}
