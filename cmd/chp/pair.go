package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/kvjson"
	"clustermap/internal/link"
	"clustermap/sockets"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const pairHelp = `

With --primary or --backup the server is one of a pair. One server is active and
serves; the other one follows it. It takes over when the active one has been silent
for twice --bstar-interval and a client asks for service. By default both run on this
machine: the primary on ports 5556 to 5558, the backup on 5566 to 5568. Clients list
both with --server. With --acks 2 an update is published, and "chp set" returns, when
both have it; while the other server is away the active one continues alone. With
--curve-key both servers use the same key. If both servers were active at the same
time, one of them discards the updates that only it has: it logs that, and writes
them to --diverged, as lines that chp load reads. Load would also replace newer values
of the map: each line has the update's seq and term, and after, the last sequence that
both have. If the seq that "chp get --json" prints is not above after, the line is newer.`

// Ports of a pair on one machine, as in the guide.
const (
	backupPort       = 5566
	primaryStatePort = 5003
	backupStatePort  = 5004
)

type pairFlags struct {
	primary, backup        bool
	peer, state, peerState string
	interval               time.Duration
	acks                   int
	diverged, secret       string
}

func (p *pairFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&p.primary, "primary", false, "run as the primary server of a pair")
	flags.BoolVar(&p.backup, "backup", false, "run as the backup server of a pair")
	flags.StringVar(&p.peer, "peer", "", "the other server's `endpoint` (default tcp://HOST:5566 for the primary, tcp://HOST:5556 for the backup)")
	flags.StringVar(&p.state, "state", "", "`endpoint` where this server publishes its state to the other one (default tcp://HOST:5003, tcp://HOST:5004)")
	flags.StringVar(&p.peerState, "peer-state", "", "`endpoint` where the other server publishes its state (default port 5004 or 5003 of the host of --peer)")
	command.Endpoints(flags, "peer", "state", "peer-state")
	flags.DurationVar(&p.interval, "bstar-interval", time.Second, "how often the servers of a pair send each other their state")
	flags.IntVar(&p.acks, "acks", 2, "how many servers of a pair must have an update before it is published: 1, 2")
	flags.StringVar(&p.secret, "pair-secret", "", "`file` with a secret of 16 characters or more that both servers of a pair without CURVE have, so that no other one can follow")
	flags.StringVar(&p.diverged, "diverged", "", "`file` to append discarded updates to (default chp-diverged.jsonl in --data, or in the working directory)")
}

// minSecret is the least length of --pair-secret.
const minSecret = 16

// role returns the role and a space for the ready line, or "" without a pair.
func (p *pairFlags) role() string {
	switch {
	case p.primary:
		return "primary "
	case p.backup:
		return "backup "
	}
	return ""
}

// options returns the options of the pair, or nil without a pair.
func (p *pairFlags) options(cmd *cobra.Command, f *serveFlags, security sockets.Security) (*chp.PairOptions, error) {
	if !p.primary && !p.backup {
		for _, name := range []string{"peer", "state", "peer-state", "bstar-interval", "acks", "pair-secret", "diverged"} {
			if cmd.Flags().Changed(name) {
				return nil, fail(exitUsage, "--%s is for a pair: add --primary or --backup", name)
			}
		}
		return nil, nil
	}
	switch {
	case p.primary && p.backup:
		return nil, fail(exitUsage, "--primary and --backup exclude each other")
	case p.interval <= 0:
		return nil, fail(exitUsage, "--bstar-interval %v: must be positive", p.interval)
	case p.acks != 1 && p.acks != 2:
		return nil, fail(exitUsage, "--acks %d: must be 1 or 2", p.acks)
	case f.load != "":
		return nil, fail(exitUsage, "--load is not for a pair: use chp load")
	}
	host := f.Host
	if host == "*" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	at := func(host string, port int) string { return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port)) }
	o := &chp.PairOptions{Backup: p.backup, Peer: p.peer, State: p.state, PeerState: p.peerState, Interval: p.interval, Acks: p.acks}
	peer, state, peerState := backupPort, primaryStatePort, backupStatePort
	if p.backup {
		peer, state, peerState = chp.DefaultPort, backupStatePort, primaryStatePort
		if !cmd.Flags().Changed("port") {
			f.Port = backupPort
		}
	}
	or := func(value *string, standard string) {
		if *value == "" {
			*value = standard
		}
	}
	or(&o.Peer, at(host, peer))
	or(&o.State, at(f.Host, state))
	if e, err := link.Parse(o.Peer, false); err == nil && e.Scheme == link.TCP {
		host = e.Host() // a server that is on another machine has its state there, too
	}
	or(&o.PeerState, at(host, peerState))
	o.OnDiverged = p.write(cmd, f.data)
	if p.secret != "" {
		text, err := os.ReadFile(p.secret)
		if err != nil {
			return nil, fail(exitUsage, "--pair-secret: %w", err)
		}
		o.Secret = bytes.TrimRight(text, "\r\n")
		switch {
		case security.CurveServer:
			return nil, fail(exitUsage, "--pair-secret is not for --curve-key: with CURVE the servers' key does this")
		case len(o.Secret) < minSecret:
			return nil, fail(exitUsage, "--pair-secret: %s has %d characters; it needs %d", p.secret, len(o.Secret), minSecret)
		}
	}
	if security.CurveServer {
		public := security.CurveSecretKey.Public()
		o.PeerSecurity = sockets.Security{CurveServerKey: public, CurvePublicKey: public, CurveSecretKey: security.CurveSecretKey}
		for _, key := range security.CurveMoreKeys {
			o.PeerSecurity.CurveMoreServerKeys = append(o.PeerSecurity.CurveMoreServerKeys, key.Public())
		}
	}
	return o, nil
}

// write returns a function that appends discarded updates to a file; see appendEntries.
func (p *pairFlags) write(cmd *cobra.Command, data string) func(chp.Divergence) {
	name := p.diverged
	if name == "" {
		name = "chp-diverged.jsonl"
		if data != "" {
			name = strings.TrimRight(data, "/") + "/" + name
		}
	}
	return func(d chp.Divergence) {
		n, err := appendEntries(name, d)
		stderr := cmd.ErrOrStderr()
		if err != nil {
			d.Fail(err) // the server's log says so
			return
		}
		fmt.Fprintf(stderr, "chp: discarded the updates after sequence %d of term %d; %s written to %s\n", d.After, d.Epoch, command.Count(n, "key"), name)
	}
}

// appendEntries appends the keys of d to a file, flushes it, and returns the number of
// keys. After an error the file is as before. Each is a line of a dump, with more fields, which
// load ignores: seq, of the update; term and after, those of d; and discarded, the time.
func appendEntries(name string, d chp.Divergence) (n int, err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	now := time.Now().UTC()
	n, err = printEntries(context.Background(), f, "", d.Entries, func(dst []byte, e chp.Entry) []byte {
		dst = kvjson.AppendSequence(append(kvjson.AppendStored(append(dst, '{'), e), ','), "seq", e.Sequence)
		dst = kvjson.AppendSequence(fmt.Appendf(dst, `,"term":%d,`, d.Epoch), "after", d.After)
		return append(now.AppendFormat(append(dst, `,"discarded":"`...), time.RFC3339), "\"}\n"...)
	})
	if !st.Mode().IsRegular() {
		return n, err
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		err = errors.Join(err, f.Truncate(st.Size()))
	}
	return n, err
}
