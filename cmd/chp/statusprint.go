package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"clustermap/chp"
	"clustermap/chp/admin"
	"clustermap/internal/visible"
)

// statusFailure is a server in JSON that did not answer.
type statusFailure struct {
	Endpoint string `json:"endpoint"`
	Error    string `json:"error"`
}

func (all replies) printJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	for _, r := range all {
		var line any = all.line(&r)
		if r.why != "" {
			line = statusFailure{r.server, r.why}
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// line returns the status of a server. How far a node of a cluster is behind, its leader says.
func (all replies) line(r *reply) admin.StatusJSON {
	line := admin.JSON(r.status)
	for i := range all {
		leader := all[i].status.Cluster
		if line.Node == nil || leader == nil || leader.Leader != leader.Node || leader.ID != r.status.Cluster.ID || leader.Term != *line.Term {
			continue
		}
		for _, m := range leader.Members {
			if m.Node == *line.Node {
				line.Lag = &m.Lag
			}
		}
	}
	return line
}

// statusRows are the names of the rows of printText, in the order of cells.
var statusRows = []string{"server", "role", "state", "epoch", "sequence", "keys", "clients", "peer", "in sync", "lag", "refused", "bad asks", "memory", "uptime", "version"}

// column returns the cells of a server. It has chosen the text of some: see package visible.
func (all replies) column(r *reply) []string {
	cells := all.cells(r)
	for i, cell := range cells {
		cells[i] = visible.String(cell)
	}
	return cells
}

func (all replies) cells(r *reply) []string {
	if r.why != "" {
		state := "no answer"
		if r.denied {
			state = "refused"
		}
		column := []string{r.server, "-", state}
		for len(column) < len(statusRows) {
			column = append(column, "-")
		}
		return column
	}
	line := all.line(r)
	peer, inSync, lag, made := "-", "-", "-", "-"
	if line.Version != nil {
		made = *line.Version
	}
	if line.Peer != nil {
		peer = *line.Peer
	}
	if line.InSync != nil {
		inSync = "no"
		if *line.InSync {
			inSync = "yes"
		}
	}
	if line.Lag != nil {
		lag = strconv.FormatInt(*line.Lag, 10)
	}
	return []string{
		r.server, string(line.Role), stateText(&line.Status), strconv.FormatUint(line.Epoch, 10), strconv.FormatInt(line.Sequence, 10),
		strconv.Itoa(line.Keys), strconv.Itoa(line.Clients), peer, inSync, lag, refusals(line.Refused),
		strconv.FormatUint(line.BadAsks, 10), memory(line.MemoryBytes), (time.Duration(line.UptimeSeconds) * time.Second).String(), made,
	}
}

// stateText describes the state of a server: of a node what it is in its cluster, as all nodes serve.
func stateText(st *chp.Status) string {
	switch {
	case st.Cluster != nil:
		return st.Cluster.State
	case st.TakesOver:
		return string(st.State) + " (would take over)"
	}
	return string(st.State)
}

// refusalsWidth is the width that refusals does not exceed, so that a column fits into a
// terminal.
const refusalsWidth = 68

// refusals formats the number of refused messages with the most frequent reasons.
func refusals(c chp.RefusalCounts) string {
	total := c.Total()
	if total == 0 {
		return "0"
	}
	var reasons []chp.Reason
	for r, n := range c {
		if n > 0 {
			reasons = append(reasons, chp.Reason(r))
		}
	}
	slices.SortStableFunc(reasons, func(a, b chp.Reason) int { return cmp.Compare(c[b], c[a]) })
	text, left := fmt.Sprintf("%d (", total), total
	for i, r := range reasons {
		part := fmt.Sprintf("%v %d", r, c[r])
		rest := ""
		if left > c[r] {
			rest = fmt.Sprintf(", others %d", left-c[r])
		}
		if i > 0 && len(text)+len(", ")+len(part)+len(rest)+len(")") > refusalsWidth {
			text += fmt.Sprintf(", others %d", left)
			break
		}
		if i > 0 {
			text += ", "
		}
		text += part
		left -= c[r]
	}
	return text + ")"
}

const (
	statusWidth = 80 // of a terminal
	statusLabel = 8  // the longest of statusRows
	statusGap   = 2  // between columns
)

// printText prints a column for each server, and as many columns side by side as fit into
// a terminal. If only some servers did not answer, it prints the reasons on stderr, and why
// servers of a pair do not hear each other. If none did, outcome returns them.
func (all replies) printText(w, stderr io.Writer) error {
	answered := false
	for _, r := range all {
		answered = answered || r.why == ""
	}
	var text strings.Builder
	for rest := all; len(rest) > 0; {
		var columns [][]string
		var widths []int
		for total := statusLabel; len(rest) > 0; rest = rest[1:] {
			column, width := all.column(&rest[0]), 0
			for _, cell := range column {
				width = max(width, utf8.RuneCountInString(cell))
			}
			if total += statusGap + width; total > statusWidth && len(columns) > 0 {
				break
			}
			columns, widths = append(columns, column), append(widths, width)
		}
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		for i, name := range statusRows {
			line := fmt.Sprintf("%-*s", statusLabel, name)
			for j, column := range columns {
				line += fmt.Sprintf("%*s%-*s", statusGap, "", widths[j], column[i])
			}
			text.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return err
	}
	for _, r := range all {
		switch {
		case r.status.PeerError != "":
			fmt.Fprintf(stderr, "chp: %s does not hear the other server of its pair: %s\n", r.server, visible.String(r.status.PeerError))
		case r.why == "" || !answered:
		case r.denied:
			fmt.Fprintf(stderr, "chp: the server %s %s\n", r.server, visible.String(strings.TrimPrefix(r.why, "it ")))
		default:
			fmt.Fprintf(stderr, "chp: no answer from %s: %s\n", r.server, visible.String(r.why))
		}
	}
	return nil
}

// memory formats a number of bytes with a unit.
func memory(bytes int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= unit.size {
			return strconv.FormatFloat(float64(bytes)/float64(unit.size), 'f', 1, 64) + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10) + "B"
}
