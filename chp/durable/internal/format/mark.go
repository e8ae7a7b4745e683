package format

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"clustermap/chp/commit"
	"clustermap/chp/durable/internal/file"
)

// A Mark is a state of the log that is on disk. It is stored in a file of its own, so that
// a log that has become shorter, or lost its checkpoint, does not look like one that never
// was longer.
type Mark struct {
	Last       uint64 // index of the last entry
	Checkpoint uint64 // index of the checkpoint, 0 without one
	Segment    uint64 // number of the segment with the end of the entry
	Offset     int64  // where that segment ended

	// Cut says that the log is being cut back to Last. What then follows entry Last may be
	// partly removed, and says nothing of what was on disk.
	Cut bool
}

// cutting is the offset in the file of a mark with Cut.
const cutting = -1

// The file with the mark has two sectors, and in each a slot:
//
//	magic 8 | format 4 | identity 16 | last 8 | checkpoint 8 | segment 8 | offset 8 | CRC-32C of all before 4
//
// The first slot is flushed: when the log is opened, begins a segment, makes a checkpoint,
// is cut back (before and after) or closed. The second one is written after each flush of the log, without a
// flush of its own: it survives the process, and the machine if the system has written it.
// A mark is written after what it says is on disk, so an old one is true as well, and a
// power cut may tear one: a slot that cannot be read says nothing. Programs that do not
// know the file ignore it.
const (
	markMagic = "CHPMARK\n"
	markBytes = len(markMagic) + 4 + 16 + 4*8 + 4
	markSlot  = 512 // distance of the slots
)

// append appends the slot of a mark.
func (m *Mark) append(b []byte, identity [16]byte) []byte {
	start := len(b)
	b = append(b, markMagic...)
	b = binary.BigEndian.AppendUint32(b, Version)
	b = append(b, identity[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Last)
	b = binary.BigEndian.AppendUint64(b, m.Checkpoint)
	b = binary.BigEndian.AppendUint64(b, m.Segment)
	offset := m.Offset
	if m.Cut {
		offset = cutting
	}
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// ReadMark returns the last mark of a log. It is zero if there is none, as in the log of an
// older program.
func ReadMark(dir string, identity [16]byte) (m Mark, err error) {
	b, err := os.ReadFile(filepath.Join(dir, EndName))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, file.CannotRead(err)
	}
	for any := false; len(b) >= markBytes; b = b[min(markSlot, len(b)):] {
		sum := binary.BigEndian.Uint32(b[markBytes-4:])
		if string(b[:8]) != markMagic || sum != crc32.Checksum(b[:markBytes-4], castagnoli) || [16]byte(b[12:]) != identity {
			continue
		}
		if err := CheckVersion(filepath.Join(dir, EndName), binary.BigEndian.Uint32(b[8:])); err != nil {
			return m, err
		}
		found := Mark{
			Last: binary.BigEndian.Uint64(b[28:]), Checkpoint: max(m.Checkpoint, binary.BigEndian.Uint64(b[36:])),
			Segment: binary.BigEndian.Uint64(b[44:]), Offset: int64(binary.BigEndian.Uint64(b[52:])),
		}
		if found.Offset == cutting {
			found.Offset, found.Cut = 0, true
		}
		if !any || cmp.Or(cmp.Compare(found.Last, m.Last), cmp.Compare(found.Segment, m.Segment), cmp.Compare(found.Offset, m.Offset)) > 0 {
			m = found
		}
		any, m.Checkpoint = true, found.Checkpoint
	}
	return m, nil
}

// Found returns an error if a log's checkpoint is older than that of the mark.
func (m *Mark) Found(dir string, checkpoint uint64) error {
	if checkpoint >= m.Checkpoint {
		return nil
	}
	return &commit.CorruptError{
		File: filepath.Join(dir, CheckpointName(m.Checkpoint)), LastGood: checkpoint, Lost: m.Checkpoint,
		Reason: errors.New("the checkpoint is missing; the file " + EndName + " says that it was on disk"),
	}
}

// Missing describes what is missing at the end of a log that ends before the mark, in its
// segment with the number last.
func (m *Mark) Missing(last uint64) error {
	if m.Cut {
		return fmt.Errorf("the log ends too early; the file %s says that entry %d was on disk", EndName, m.Last)
	}
	if m.Segment > last {
		return fmt.Errorf("segment %d is missing; the file %s says that entry %d ended at its offset %d, on disk", m.Segment, EndName, m.Last, m.Offset)
	}
	return fmt.Errorf("the log ends too early; the file %s says that entry %d ended at offset %d of segment %d, on disk", EndName, m.Last, m.Offset, m.Segment)
}

// A MarkFile is the file with the mark of a log that is open. The caller serializes the
// methods.
type MarkFile struct {
	Disk     file.Disk
	f        *os.File
	identity [16]byte
	Mark     Mark // the last one that was written
	flushed  bool // it is in the flushed slot
	scratch  [markBytes]byte
}

// Open replaces the file by one with a mark.
func (k *MarkFile) Open(dir *file.Directory, identity [16]byte, m Mark) error {
	content := append(m.append(nil, identity), make([]byte, 2*markSlot-markBytes)...)
	if err := k.Disk.ReplaceFile(dir, EndName, content); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir.Path, EndName), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	k.f, k.identity, k.Mark, k.flushed = f, identity, m, true
	return nil
}

// Write writes a mark, which replaces an earlier one that says more.
func (k *MarkFile) Write(m Mark) error {
	return k.put(m, markSlot, false)
}

// Flush writes a mark and flushes it.
func (k *MarkFile) Flush(m Mark) error {
	if k.flushed && k.Mark == m {
		return nil
	}
	if m.Last < k.Mark.Last {
		if err := k.Write(m); err != nil {
			return err
		}
	}
	return k.put(m, 0, true)
}

func (k *MarkFile) put(m Mark, offset int64, flush bool) error {
	_, err := k.f.WriteAt(m.append(k.scratch[:0], k.identity), offset)
	if err == nil && flush {
		err = k.Disk.Data(k.f)
	}
	if err != nil {
		return fmt.Errorf("end of the log: %w", err)
	}
	k.Mark, k.flushed = m, flush
	return nil
}

// Close closes the file.
func (k *MarkFile) Close() {
	if k.f != nil {
		k.f.Close()
		k.f = nil
	}
}
