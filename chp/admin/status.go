package admin

import (
	"encoding/json"
	"net/http"

	"clustermap/chp"
)

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

	// Of a node of a cluster State is what it is there: leader, follower, candidate or learner. The leader's Lag is 0; another node does
	// not know its own, see chp.NodeMember.
	State string  `json:"state"`
	Node  *uint64 `json:"node"`
	Term  *uint64 `json:"term"`
}

// JSON returns a status in that form.
func JSON(st chp.Status) StatusJSON {
	j := StatusJSON{Status: st, Sequence: st.Sequence, State: string(st.State)}
	if st.Version != "" {
		j.Version = &st.Version
	}
	if st.Role == chp.RolePrimary || st.Role == chp.RoleBackup {
		j.Peer = &st.Peer
		if st.State == chp.ServerActive {
			j.InSync, j.Lag = &st.InSync, &st.Lag
		}
	}
	if c := st.Cluster; c != nil {
		j.State, j.Node, j.Term = c.State, &c.Node, &c.Term
		if c.Leader == c.Node {
			j.Lag = new(int64)
		}
	}
	return j
}

// A ClientsJSON is the answer of /clients.
type ClientsJSON struct {
	Clients []chp.ClientInfo `json:"clients"` // the first ones that came, up to 1,000
	More    int              `json:"more"`    // how many others there are
}

func (h *Handler) clients(w http.ResponseWriter, r *http.Request) {
	s := h.server.Load()
	if s == nil {
		http.Error(w, notAttached, http.StatusServiceUnavailable)
		return
	}
	all, err := within(r.Context(), h.probes, func() ClientsJSON {
		all := ClientsJSON{Clients: []chp.ClientInfo{}}
		for c := range s.Clients() {
			if len(all.Clients) == maxClients {
				all.More = max(s.Status().Clients-maxClients, 1)
				break
			}
			all.Clients = append(all.Clients, c)
		}
		return all
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // the asker is gone
}
