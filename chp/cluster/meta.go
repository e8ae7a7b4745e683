package cluster

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"clustermap/chp/commit"
	"clustermap/internal/mutate"
)

// meta is what a node keeps beside its log: who it is, for whom it has voted in which term, and
// the members of the last change that its owner has applied. It is written at each of these,
// which is rare, and flushed before raft is told.
type meta struct {
	Format  uint32  `json:"format"`
	Cluster string  `json:"cluster"`
	Node    uint64  `json:"node"`
	Term    uint64  `json:"term"`
	Vote    uint64  `json:"vote"`
	Members members `json:"members"`
	// Commit is the index of the last change of the members that is known to be committed, which
	// may not be applied yet. The log has this index with a delay.
	Commit uint64 `json:"commit"`
	// Heard are the members of which this node has ever had a message. One of these whose directory is
	// empty has lost it.
	Heard []uint64 `json:"heard,omitempty"`
}

// metaFormat is the version of the file.
const metaFormat = 1

// metaName is the name of the file, beside those of package durable.
const metaName = "member"

// A metaStore keeps the meta of a node.
type metaStore interface {
	load() (meta, error) // fs.ErrNotExist before the first save
	save(*meta) error    // returns when it is on the disk
	close() error
}

// The file has two slots with the same content. Each is written and flushed before the other is, so that a
// power cut tears one at most; and when a save is over, damage to one of them is no loss: a vote that is
// forgotten can elect two leaders in a term.
//
//	magic 8 | number 8 | length 4 | JSON | CRC-32C of all before 4
const metaMagic = "CHPMEMB\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// metaFile is the file of a node's meta.
type metaFile struct {
	path   string
	f      *os.File
	number uint64
	slot   int // that has this number
}

// slots is how many copies the file has.
const slots = 2

func (s *metaFile) load() (meta, error) {
	s.slot = slots - 1 // a new file begins with the first one
	b, err := os.ReadFile(s.path)
	if err != nil {
		return meta{}, err
	}
	var best []byte
	for slot := range slots {
		if start := slot * memberBytes; len(b) > start {
			if number, body, ok := parseSlot(b[start:min(start+memberBytes, len(b))]); ok && number > s.number {
				s.number, s.slot, best = number, slot, body
			}
		}
	}
	if best == nil {
		// The first slot was being written when the node first started: it has done nothing yet.
		if len(b) < memberBytes {
			return meta{}, fs.ErrNotExist
		}
		return meta{}, &commit.CorruptError{File: s.path, Reason: errors.New("no valid slot")}
	}
	var m meta
	if err := json.Unmarshal(best, &m); err != nil {
		return m, &commit.CorruptError{File: s.path, Reason: err}
	}
	if m.Format > metaFormat {
		return m, &commit.FormatError{What: s.path, Unit: "format", Version: m.Format, Newest: metaFormat}
	}
	return m, nil
}

func parseSlot(b []byte) (number uint64, body []byte, ok bool) {
	const head = len(metaMagic) + 12
	if len(b) < head+4 || string(b[:8]) != metaMagic {
		return 0, nil, false
	}
	n := int64(binary.BigEndian.Uint32(b[16:]))
	if n > int64(len(b)-head-4) {
		return 0, nil, false
	}
	end := head + int(n)
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(b[8:]), b[head:end], true
}

func (s *metaFile) save(m *meta) error {
	m.Format = metaFormat
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, len(body)+32), metaMagic...)
	b = binary.BigEndian.AppendUint64(b, s.number+1)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if len(b) > memberBytes {
		return errMembers
	}
	created := s.f == nil
	if created {
		if s.f, err = os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return err
		}
	}
	for slot := range slots {
		if mutate.ClusterForgetMember && slot > 0 {
			s.slot = (s.slot + 1) % slots
			break
		}
		// The one that load did not take is written first: the other is not torn before that is on the disk.
		if _, err := s.f.WriteAt(b, int64((s.slot+1+slot)%slots)*memberBytes); err != nil {
			return err
		}
		if err := s.f.Sync(); err != nil {
			return err
		}
	}
	if created {
		if err := syncDir(filepath.Dir(s.path)); err != nil {
			return err
		}
	}
	s.number++
	return nil
}

func (s *metaFile) close() error {
	if s.f == nil {
		return nil
	}
	return s.f.Close()
}

// syncDir flushes the names in a directory.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// An ID identifies a cluster. All its nodes are given the same.
type ID [16]byte

// String returns the id in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID parses the result of String.
func ParseID(s string) (id ID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("cluster: %q is not the id of a cluster: 32 hexadecimal digits", s)
	}
	return ID(b), nil
}

// DirMember returns the cluster and the node that a directory belongs to, and false if it belongs to no node. The address is that by which
// the others reach the node, or "" if the directory does not have it yet.
func DirMember(dir string) (id ID, node Member, ok bool, err error) {
	m, err := (&metaFile{path: filepath.Join(dir, metaName)}).load()
	if errors.Is(err, fs.ErrNotExist) {
		return id, node, false, nil
	}
	if err == nil {
		id, err = ParseID(m.Cluster)
	}
	return id, Member{Node: m.Node, Address: m.Members.Addresses[m.Node], Learner: !m.Members.voter(m.Node)}, err == nil, err
}
