package durable

import (
	"clustermap/chp/durable/internal/file"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"clustermap/chp/commit"
)

// A mark is a state of the log that is on disk. It is stored in a file of its own, so that
// a log that has become shorter, or lost its checkpoint, does not look like one that never
// was longer.
type mark struct {
	last       uint64 // index of the last entry
	checkpoint uint64 // index of the checkpoint, 0 without one
	segment    uint64 // number of the segment with the end of the entry
	offset     int64  // where that segment ended
}

// endName is the file with the mark. It has two sectors, and in each a slot:
//
//	magic 8 | format 4 | identity 16 | last 8 | checkpoint 8 | segment 8 | offset 8 | CRC-32C of all before 4
//
// The first slot is flushed: when the log is opened, begins a segment, makes a checkpoint,
// is cut back or closed. The second one is written after each flush of the log, without a
// flush of its own: it survives the process, and the machine if the system has written it.
// A mark is written after what it says is on disk, so an old one is true as well, and a
// power cut may tear one: a slot that cannot be read says nothing. Programs that do not
// know the file ignore it.
const endName = "end"

const (
	markMagic = "CHPMARK\n"
	markBytes = len(markMagic) + 4 + 16 + 4*8 + 4
	markSlot  = 512 // distance of the slots
)

// append appends the slot of a mark.
func (m *mark) append(b []byte, identity [16]byte) []byte {
	start := len(b)
	b = append(b, markMagic...)
	b = binary.BigEndian.AppendUint32(b, formatVersion)
	b = append(b, identity[:]...)
	b = binary.BigEndian.AppendUint64(b, m.last)
	b = binary.BigEndian.AppendUint64(b, m.checkpoint)
	b = binary.BigEndian.AppendUint64(b, m.segment)
	b = binary.BigEndian.AppendUint64(b, uint64(m.offset))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// readMark returns the last mark of a log. It is zero if there is none, as in the log of an
// older program.
func readMark(dir string, identity [16]byte) (m mark, err error) {
	b, err := os.ReadFile(filepath.Join(dir, endName))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, file.CannotRead(err)
	}
	for ; len(b) >= markBytes; b = b[min(markSlot, len(b)):] {
		sum := binary.BigEndian.Uint32(b[markBytes-4:])
		if string(b[:8]) != markMagic || sum != crc32.Checksum(b[:markBytes-4], castagnoli) || [16]byte(b[12:]) != identity {
			continue
		}
		if err := checkFormat(filepath.Join(dir, endName), binary.BigEndian.Uint32(b[8:])); err != nil {
			return m, err
		}
		found := mark{
			last: binary.BigEndian.Uint64(b[28:]), checkpoint: max(m.checkpoint, binary.BigEndian.Uint64(b[36:])),
			segment: binary.BigEndian.Uint64(b[44:]), offset: int64(binary.BigEndian.Uint64(b[52:])),
		}
		if cmp.Or(cmp.Compare(found.last, m.last), cmp.Compare(found.segment, m.segment), cmp.Compare(found.offset, m.offset)) > 0 {
			m = found
		}
		m.checkpoint = found.checkpoint
	}
	return m, nil
}

// found returns an error if a log's checkpoint is older than that of the mark.
func (m *mark) found(dir string, checkpoint uint64) error {
	if checkpoint >= m.checkpoint {
		return nil
	}
	return &commit.CorruptError{
		File: filepath.Join(dir, checkpointName(m.checkpoint)), LastGood: checkpoint, Lost: m.checkpoint,
		Reason: errors.New("the checkpoint is missing; the file " + endName + " says that it was on disk"),
	}
}

// missing describes what is missing at the end of a log that ends before the mark, in its
// segment with the number last.
func (m *mark) missing(last uint64) error {
	if m.segment > last {
		return fmt.Errorf("segment %d is missing; the file %s says that entry %d ended at its offset %d, on disk", m.segment, endName, m.last, m.offset)
	}
	return fmt.Errorf("the log ends too early; the file %s says that entry %d ended at offset %d of segment %d, on disk", endName, m.last, m.offset, m.segment)
}

// A markFile is the file with the mark of a log that is open. The caller serializes the
// methods.
type markFile struct {
	disk     file.Disk
	f        *os.File
	identity [16]byte
	mark     mark // the last one that was written
	flushed  bool // it is in the flushed slot
	scratch  [markBytes]byte
}

// open replaces the file by one with a mark.
func (k *markFile) open(dir *file.Directory, identity [16]byte, m mark) error {
	content := append(m.append(nil, identity), make([]byte, 2*markSlot-markBytes)...)
	if err := k.disk.ReplaceFile(dir, endName, content); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir.Path, endName), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	k.f, k.identity, k.mark, k.flushed = f, identity, m, true
	return nil
}

// write writes a mark, which replaces an earlier one that says more.
func (k *markFile) write(m mark) error {
	return k.put(m, markSlot, false)
}

// flush writes a mark and flushes it.
func (k *markFile) flush(m mark) error {
	if k.flushed && k.mark == m {
		return nil
	}
	if m.last < k.mark.last {
		if err := k.write(m); err != nil {
			return err
		}
	}
	return k.put(m, 0, true)
}

func (k *markFile) put(m mark, offset int64, flush bool) error {
	_, err := k.f.WriteAt(m.append(k.scratch[:0], k.identity), offset)
	if err == nil && flush {
		err = k.disk.Data(k.f)
	}
	if err != nil {
		return fmt.Errorf("end of the log: %w", err)
	}
	k.mark, k.flushed = m, flush
	return nil
}

func (k *markFile) close() {
	if k.f != nil {
		k.f.Close()
		k.f = nil
	}
}
