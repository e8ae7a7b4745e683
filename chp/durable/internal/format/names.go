// Package format has the names and the bytes of the files of a log, except for its segments:
// metadata, the mark of what was flushed, checkpoints and backups; and of an entry, which
// segments have, too. docs/DURABILITY.md describes the files.
package format

import (
	"fmt"
	"os"
	"strings"

	"clustermap/chp/durable/internal/file"
)

// Names in a log's directory.
const (
	MetaName = "meta"
	LockName = "lock"
	LogName  = "log" // the directory of the segments
	EndName  = "end" // the mark

	// RestoreName is the directory in which a restore creates a log before it moves it to its
	// place. A directory that contains it is not a log: the restore was not finished.
	RestoreName = "restore.tmp"

	checkpointPrefix = "checkpoint-"
)

// CheckpointName is the name of the checkpoint whose last entry has an index.
func CheckpointName(index uint64) string { return fmt.Sprintf("%s%016x", checkpointPrefix, index) }

// Checkpoints returns the indexes of all checkpoints in a directory, in order.
func Checkpoints(dir string) ([]uint64, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, file.CannotRead(err)
	}
	var found []uint64 // os.ReadDir sorts
	for _, d := range all {
		if index, ok := CheckpointIndex(d.Name()); ok {
			found = append(found, index)
		}
	}
	return found, nil
}

// CheckpointIndex is the reverse of CheckpointName.
func CheckpointIndex(name string) (index uint64, ok bool) {
	text, ok := strings.CutPrefix(name, checkpointPrefix)
	if !ok || len(text) != 16 {
		return 0, false
	}
	_, err := fmt.Sscanf(text, "%016x", &index)
	return index, err == nil
}
