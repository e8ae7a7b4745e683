package admin

import "clustermap/chp"

// A StatusJSON is a status as "chp status --json" and /status have it: the sequence is a string,
// since many languages read numbers as floats, and a field is null if the server does not know
// it, or it does not apply.
type StatusJSON struct {
	chp.Status
	Version  *string `json:"version"`
	Sequence int64   `json:"sequence,string"`
	Peer     *string `json:"peer"`
	InSync   *bool   `json:"in_sync"`
	Lag      *int64  `json:"lag"`
}

// JSON returns a status in that form.
func JSON(st chp.Status) StatusJSON {
	j := StatusJSON{Status: st, Sequence: st.Sequence}
	if st.Version != "" {
		j.Version = &st.Version
	}
	if st.Role != chp.RoleAlone {
		j.Peer = &st.Peer
		if st.State == chp.ServerActive {
			j.InSync, j.Lag = &st.InSync, &st.Lag
		}
	}
	return j
}
