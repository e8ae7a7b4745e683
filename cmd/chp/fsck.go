package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/chp/cluster"
	"clustermap/chp/commit"
	"clustermap/chp/durable"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newFsck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fsck PATH",
		Short: "Check the data of a server, or a backup",
		Long: `Reads all data in a directory of chp serve --data, or a file of chp backup, and
reports what is readable: the checkpoint, the segments of the log after it, and the
last entry and sequence, and whether a server can replay it. It changes nothing and takes no lock, so it can run while the
server runs.

Unfinished writes of a machine or a server that stopped are not damage: the next start
removes them, and no client was told that they were stored. Damage is data that was
flushed to disk and cannot be read, or is missing; a server does not start with it. In that case
restore a backup to another directory (chp restore), or copy the map from another
server (chp backup --server). What a newer version of this program has written is not
damaged, but a server of this version does not start with it.

Exit codes: 0 sound, 1 damaged, unreadable, not a backup or of a newer version, 2
usage error.`,
		Example: `  chp fsck /var/lib/chp
  chp fsck --json map.backup | jq .sound`,
		Args: command.Args(1, 1),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = command.Runs(func(_ context.Context, cmd *cobra.Command, args []string) error {
		path := args[0]
		info, err := os.Stat(path)
		if err != nil {
			return fail(exitRefused, "%w", err)
		}
		check, size, entry := checkLog, int64(-1), chp.EntryCheck()
		var cl cluster.ID
		var node cluster.Member
		var member bool
		var broken error
		if !info.IsDir() {
			check, size = checkBackup, info.Size()
		} else if cl, node, member, broken = cluster.DirMember(path); member || broken != nil {
			entry = cluster.EntryCheck(entry)
		}
		bar := newProgress(cmd, "checking", size)
		result, text, defect, err := check(path, bar.reading(entry))
		bar.finish()
		switch {
		case err != nil:
			return fail(exitRefused, "%s", logText(err))
		case broken != nil && defect == nil:
			defect = broken
			result.Sound, result.Defect = false, defectOf(broken)
			text = strings.TrimSuffix(text, "sound\n") + fmt.Sprintf("defect: %v\n", broken)
		case member:
			result.Node, result.Cluster = node.Node, cl.String()
			text = fmt.Sprintf("node %d of cluster %s\n", node.Node, cl) + text
		}
		out := cmd.OutOrStdout()
		if asJSON {
			err = json.NewEncoder(out).Encode(result)
		} else {
			_, err = fmt.Fprint(out, text)
		}
		switch {
		case err != nil || defect == nil:
			return err
		case errors.Is(defect, commit.ErrFormat):
			return fail(exitRefused, "%s: %s", path, logText(defect))
		}
		return fail(exitRefused, "%s is damaged", path)
	})
	return cmd
}

// checked is the output of fsck --json. Sequences are strings as in kvjson.AppendSequence, and
// so are epochs, which have random bits here.
type checked struct {
	Path       string             `json:"path"`
	Kind       string             `json:"kind"` // log or backup
	Sound      bool               `json:"sound"`
	Node       uint64             `json:"node,omitempty"`
	Cluster    string             `json:"cluster,omitempty"`
	Identity   string             `json:"identity,omitempty"`
	Format     uint32             `json:"format,omitempty"`
	Epoch      uint64             `json:"epoch,string"`
	Checkpoint *checkedCheckpoint `json:"checkpoint,omitempty"`
	Segments   []checkedSegment   `json:"segments,omitempty"`
	Unread     int                `json:"unread_segments,omitempty"`
	First      uint64             `json:"first_entry,omitempty"`
	Last       uint64             `json:"last_entry"`
	Entries    uint64             `json:"entries"`
	Updates    uint64             `json:"updates"`
	Sequence   uint64             `json:"last_sequence,string"`
	Committed  uint64             `json:"committed_entry,omitempty"`
	Flushed    uint64             `json:"flushed_entry,omitempty"`
	Time       *time.Time         `json:"time,omitempty"`
	Bytes      int64              `json:"bytes,omitempty"`
	Unfinished *checkedTorn       `json:"unfinished,omitempty"`
	Defect     *checkedDefect     `json:"defect,omitempty"`
}

type checkedCheckpoint struct {
	File     string    `json:"file"`
	Entry    uint64    `json:"entry"`
	Epoch    uint64    `json:"epoch,string"`
	Sequence uint64    `json:"sequence,string"`
	Time     time.Time `json:"time"`
	Pieces   uint64    `json:"pieces"`
	Updates  uint64    `json:"updates"`
	Bytes    int64     `json:"bytes"`
}

type checkedSegment struct {
	File    string `json:"file"`
	First   uint64 `json:"first_entry"`
	Last    uint64 `json:"last_entry"`
	Entries uint64 `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Size    int64  `json:"size"`
}

type checkedTorn struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	After  uint64 `json:"after_entry"`
}

type checkedDefect struct {
	Reason string `json:"reason"`
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset"`
	Last   uint64 `json:"last_readable_entry"`
	Lost   uint64 `json:"lost_up_to_entry,omitempty"` // 0 if unknown
}

func defectOf(err error) *checkedDefect {
	if err == nil {
		return nil
	}
	var corrupt *commit.CorruptError
	if errors.As(err, &corrupt) {
		return &checkedDefect{Reason: corrupt.Reason.Error(), File: corrupt.File, Offset: corrupt.Offset, Last: corrupt.LastGood, Lost: corrupt.Lost}
	}
	return &checkedDefect{Reason: logText(err)}
}

func checkLog(path string, entry func(commit.Entry) error) (result *checked, text string, defect, err error) {
	r, err := durable.Check(path, entry)
	if err != nil {
		return nil, "", nil, err
	}
	c := &checked{
		Path: path, Kind: "log", Sound: r.Defect == nil,
		Identity: hex.EncodeToString(r.Meta.Identity[:]), Format: r.Meta.Format, Epoch: r.Meta.Epoch,
		Unread: r.Unread, First: r.First, Last: r.Last, Entries: r.Entries, Updates: r.Records, Sequence: r.Sequence, Committed: r.Committed, Flushed: r.Flushed,
		Defect: defectOf(r.Defect),
	}
	if k := &r.Checkpoint; k.File != "" {
		c.Checkpoint = &checkedCheckpoint{
			File: filepath.Base(k.File), Entry: k.Index, Epoch: k.Epoch, Sequence: k.Sequence, Time: k.Time,
			Pieces: r.CheckpointEntries, Updates: r.CheckpointRecords, Bytes: k.Bytes,
		}
	}
	for _, s := range r.Segments {
		c.Segments = append(c.Segments, checkedSegment{File: filepath.Base(s.File), First: s.First, Last: s.Last, Entries: s.Entries, Bytes: s.Bytes, Size: s.Size})
	}
	if t := r.Torn; t != nil {
		c.Unfinished = &checkedTorn{File: filepath.Base(t.File), Offset: t.Offset, Bytes: t.Bytes, After: t.After}
	}
	return c, r.String(), r.Defect, nil
}

func checkBackup(path string, entry func(commit.Entry) error) (result *checked, text string, defect, err error) {
	b, err := durable.ReadBackup(path, entry)
	var corrupt *commit.CorruptError
	if errors.As(err, &corrupt) || errors.Is(err, commit.ErrFormat) {
		defect, err = err, nil
	}
	if err != nil {
		return nil, "", nil, err
	}
	c := &checked{
		Path: path, Kind: "backup", Sound: defect == nil,
		Epoch: b.Epoch, Last: b.Last, Entries: b.Entries, Updates: b.Records, Sequence: b.Sequence, Bytes: b.Bytes,
		Defect: defectOf(defect),
	}
	if b.Identity != [16]byte{} {
		c.Identity = hex.EncodeToString(b.Identity[:])
	}
	if b.File != "" {
		c.Time = &b.Time
		text = fmt.Sprintf("backup of %s, epoch %d, %d bytes\n%d entries, %d updates\nlast sequence %d\n",
			b.Time.Format(time.RFC3339), b.Epoch, b.Bytes, b.Entries, b.Records, b.Sequence)
	}
	if defect != nil {
		text += fmt.Sprintf("defect: %v\n", defect)
	} else {
		text += "sound\n"
	}
	return c, text, defect, nil
}
