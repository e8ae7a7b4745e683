package durable

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clustermap/chp/commit"
)

// A checkpoint's file:
//
//	header   magic 8 | format 4 | identity 16 | index 8 | epoch 8 | sequence 8 | time 8 | checksum 4
//	entry    length 4 | header and records | checksum 4
//	trailer  0 4 | entries 8 | records 8 | checksum 4
//
// The checksum is a CRC-32C that runs from the first byte on, checksums left
// out, so that a piece that is missing, repeated or of another checkpoint shows.
const (
	checkpointMagic  = "CHPCKPT\n"
	checkpointHeader = 8 + 4 + 16 + 8 + 8 + 8 + 8 + 4
	checkpointPrefix = "checkpoint-"
)

// CheckpointInfo is what the header of a checkpoint says.
type CheckpointInfo struct {
	File     string
	Index    uint64 // the state is that after this entry
	Epoch    uint64
	Sequence uint64 // last sequence of the state
	Time     time.Time
	Bytes    int64
}

func checkpointName(index uint64) string { return fmt.Sprintf("%s%016x", checkpointPrefix, index) }

// checkpoints returns the indexes of all checkpoints in a directory.
func checkpoints(dir string) ([]uint64, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []uint64 // os.ReadDir sorts
	for _, d := range all {
		var index uint64
		text, ok := strings.CutPrefix(d.Name(), checkpointPrefix)
		if !ok || len(text) != 16 {
			continue
		}
		if _, err := fmt.Sscanf(text, "%016x", &index); err == nil {
			found = append(found, index)
		}
	}
	return found, nil
}

// checkpointWriter implements commit.Checkpoint.
type checkpointWriter struct {
	log      *Log
	index    uint64
	path     string // the final name
	f        *os.File
	w        *bufio.Writer
	crc      uint32
	head     []byte
	entries  uint64
	records  uint64
	err      error
	finished bool
}

// Checkpoint begins a checkpoint; see [commit.Log]. A second one waits for the
// end of the first with an error.
func (l *Log) Checkpoint(index, sequence uint64) (commit.Checkpoint, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return nil, err
	}
	if l.checkpointing {
		return nil, errors.New("log: a checkpoint is being written")
	}
	if index == 0 || index < l.checkpoint.Index || index > l.last {
		return nil, fmt.Errorf("%w: checkpoint at %d, entries %d to %d", commit.ErrOrder, index, l.checkpoint.Index+1, l.last)
	}
	c := &checkpointWriter{log: l, index: index, path: filepath.Join(l.dir, checkpointName(index))}
	f, err := os.OpenFile(c.path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w", classify(err))
	}
	c.f = f
	c.w = bufio.NewWriterSize(f, 256<<10)
	b := append(make([]byte, 0, checkpointHeader), checkpointMagic...)
	b = binary.BigEndian.AppendUint32(b, formatVersion)
	b = append(b, l.meta.Identity[:]...)
	b = binary.BigEndian.AppendUint64(b, index)
	b = binary.BigEndian.AppendUint64(b, l.meta.Epoch)
	b = binary.BigEndian.AppendUint64(b, sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixNano()))
	c.write(b, nil)
	l.checkpointing = true
	return c, nil
}

// write writes a piece of two parts and the checksum up to there.
func (c *checkpointWriter) write(head, body []byte) {
	c.crc = crc32.Update(c.crc, castagnoli, head)
	c.crc = crc32.Update(c.crc, castagnoli, body)
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], c.crc)
	for _, b := range [...][]byte{head, body, sum[:]} {
		if c.err == nil {
			_, c.err = c.w.Write(b)
		}
	}
}

func (c *checkpointWriter) Append(e commit.Entry) error {
	if c.finished {
		return commit.ErrClosed
	}
	if len(e.Records) > MaxEntryBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", commit.ErrTooLarge, len(e.Records), MaxEntryBytes)
	}
	records := e.Records
	e.Records = nil
	c.head = binary.BigEndian.AppendUint32(c.head[:0], uint32(headerBytes+len(records)))
	c.head = appendEntry(c.head, &e)
	c.write(c.head, records)
	c.entries++
	c.records += uint64(e.Count)
	if c.err != nil {
		return fmt.Errorf("log: checkpoint: %w", classify(c.err))
	}
	return nil
}

// Commit makes the checkpoint the current one. If it fails, the checkpoint is
// removed and the log goes on as it was, unless the log's own flush failed.
func (c *checkpointWriter) Commit() error {
	if c.finished {
		return commit.ErrClosed
	}
	defer c.Abort()
	b := binary.BigEndian.AppendUint32(c.head[:0], 0)
	b = binary.BigEndian.AppendUint64(b, c.entries)
	b = binary.BigEndian.AppendUint64(b, c.records)
	c.write(b, nil)
	if c.err == nil {
		c.err = c.w.Flush()
	}
	if c.err == nil {
		c.err = c.log.disk.data(c.f)
	}
	if c.err != nil {
		return fmt.Errorf("log: checkpoint: %w", classify(c.err))
	}
	// The log has to reach the checkpoint on the disk before the checkpoint counts.
	if err := c.log.Sync(); err != nil {
		return err
	}
	return c.log.adopt(c)
}

func (c *checkpointWriter) Abort() {
	if c.finished {
		return
	}
	c.finished = true
	c.f.Close()
	os.Remove(c.path + ".tmp")
	c.log.mu.Lock()
	c.log.checkpointing = false
	c.log.mu.Unlock()
}

// adopt gives a complete checkpoint its name, and removes what it replaces.
func (l *Log) adopt(c *checkpointWriter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(); err != nil {
		return err
	}
	if c.index > l.last {
		return fmt.Errorf("%w: the log was cut back to %d under a checkpoint at %d", commit.ErrOrder, l.last, c.index)
	}
	if err := os.Rename(c.path+".tmp", c.path); err != nil {
		return fmt.Errorf("log: checkpoint: %w", classify(err))
	}
	if err := l.disk.dir(l.dir); err != nil {
		// Nobody knows which of the two checkpoints a restart would find.
		return l.fail(fmt.Errorf("checkpoint: %w", err))
	}
	info, err := readCheckpointHeader(c.path, l.meta.Identity)
	if err != nil {
		return l.fail(err)
	}
	old := l.checkpoint
	l.checkpoint = info
	if old.File != "" && old.Index != info.Index {
		os.Remove(old.File) // if it stays, the next Open removes it
	}
	return l.cutFront()
}

// openCheckpoint opens a checkpoint and reads its header. The result has the
// checksum so far.
func openCheckpoint(path string, identity [16]byte) (info CheckpointInfo, f *os.File, crc uint32, err error) {
	damaged := func(err error) error { return &commit.CorruptError{File: path, Reason: err} }
	if f, err = os.Open(path); err != nil {
		return info, nil, 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	var b [checkpointHeader]byte
	if _, err = io.ReadFull(f, b[:]); err != nil {
		return info, nil, 0, damaged(err)
	}
	if string(b[:8]) != checkpointMagic {
		return info, nil, 0, damaged(errors.New("not a checkpoint"))
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != formatVersion {
		return info, nil, 0, fmt.Errorf("%w: %s has version %d, this program knows %d", commit.ErrFormat, path, v, formatVersion)
	}
	crc = crc32.Checksum(b[:checkpointHeader-4], castagnoli)
	if binary.BigEndian.Uint32(b[checkpointHeader-4:]) != crc {
		return info, nil, 0, damaged(errChecksum)
	}
	if string(b[12:28]) != string(identity[:]) {
		return info, nil, 0, damaged(errors.New("of another server's log"))
	}
	info = CheckpointInfo{
		File:     path,
		Index:    binary.BigEndian.Uint64(b[28:]),
		Epoch:    binary.BigEndian.Uint64(b[36:]),
		Sequence: binary.BigEndian.Uint64(b[44:]),
		Time:     time.Unix(0, int64(binary.BigEndian.Uint64(b[52:]))),
	}
	st, err := f.Stat()
	if err != nil {
		return info, nil, 0, err
	}
	info.Bytes = st.Size()
	return info, f, crc, nil
}

func readCheckpointHeader(path string, identity [16]byte) (CheckpointInfo, error) {
	info, f, _, err := openCheckpoint(path, identity)
	if err == nil {
		f.Close()
	}
	return info, err
}

// readCheckpoint calls fn with all entries of a checkpoint, and checks it.
// Errors of fn come back as they are; damage is a *commit.CorruptError.
func readCheckpoint(path string, identity [16]byte, fn func(commit.Entry) error) (entries, records uint64, err error) {
	info, f, crc, err := openCheckpoint(path, identity)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	offset := int64(checkpointHeader)
	damaged := func(err error) error {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return &commit.CorruptError{File: path, Offset: offset, Reason: err}
	}
	r := bufio.NewReaderSize(f, 256<<10)
	var buffer []byte
	for {
		var length [4]byte
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return entries, records, damaged(err)
		}
		n := int64(binary.BigEndian.Uint32(length[:]))
		last := n == 0
		if last {
			n = 16
		}
		if n > headerBytes+MaxEntryBytes || offset+4+n+4 > info.Bytes {
			return entries, records, damaged(fmt.Errorf("entry of %d bytes", n))
		}
		if int64(cap(buffer)) < n+4 {
			buffer = make([]byte, n+4)
		}
		buffer = buffer[:n+4]
		if _, err := io.ReadFull(r, buffer); err != nil {
			return entries, records, damaged(err)
		}
		crc = crc32.Update(crc32.Update(crc, castagnoli, length[:]), castagnoli, buffer[:n])
		if binary.BigEndian.Uint32(buffer[n:]) != crc {
			return entries, records, damaged(errChecksum)
		}
		if last {
			if binary.BigEndian.Uint64(buffer) != entries || binary.BigEndian.Uint64(buffer[8:]) != records {
				return entries, records, damaged(errors.New("entries are missing"))
			}
			offset += 4 + n + 4
			if offset != info.Bytes {
				return entries, records, damaged(fmt.Errorf("%d bytes behind the end", info.Bytes-offset))
			}
			return entries, records, nil
		}
		e, err := parseEntry(info.Index, info.Epoch, buffer[:n])
		if err != nil {
			return entries, records, damaged(err)
		}
		offset += 4 + n + 4
		entries++
		records += uint64(e.Count)
		if err := fn(e); err != nil {
			return entries, records, err
		}
	}
}
