package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"clustermap/internal/command"
	"clustermap/patterns/majordomo"
	"clustermap/sockets"
	"clustermap/zmtp"
)

const allowWorkerHelp = `
Any peer can be a worker of any service, except of those that begin with titanic. With
CURVE these need the broker's own key (zdev titanic --curve-key with the same file);
without it the machine of the broker. Only one zdev titanic at a time gets them.

--allow-worker changes that for one service, or with a star at the end for all that begin
so; the longest rule counts. A rule is SERVICE=PEER,PEER..., where a PEER is a public key,
an address or a network such as 10.1.0.0/16, user:NAME for a user of PLAIN or ZAP, local
for a peer on this machine, or any. SERVICE= alone allows nobody. Refused workers are
reported on standard error.`

// maxRules is the maximum size of a file of --allow-worker in bytes.
const maxRules = 1 << 20

// workerRule says who may be a worker of some services.
type workerRule struct {
	service string // without the star
	prefix  bool
	allowed []func(*sockets.Peer) bool
}

// workerRules returns the function for the values of --allow-worker, each a rule or a file
// with one on a line. standard decides about the services for which there is no rule.
func workerRules(values []string, standard func(string, *sockets.Peer) bool) (func(string, *sockets.Peer) bool, error) {
	var rules []workerRule
	for _, value := range values {
		all, err := readRules(value)
		if err != nil {
			return nil, command.Fail(command.ExitUsage, "--allow-worker: %w", err)
		}
		rules = append(rules, all...)
	}
	// The longest first; titanic.* is a rule too, which only a longer one, or the same, replaces.
	slices.SortStableFunc(rules, func(a, b workerRule) int { return len(b.service) - len(a.service) })
	return func(service string, peer *sockets.Peer) bool {
		for _, r := range rules {
			switch {
			case r.service != service && !(r.prefix && strings.HasPrefix(service, r.service)):
			case strings.HasPrefix(service, majordomo.TitanicPrefix) && len(r.service) < len(majordomo.TitanicPrefix):
			default:
				return slices.ContainsFunc(r.allowed, func(allows func(*sockets.Peer) bool) bool { return allows(peer) })
			}
		}
		return standard(service, peer)
	}, nil
}

// readRules returns the rules in a file, or the rule that value is.
func readRules(value string) ([]workerRule, error) {
	info, err := os.Stat(value)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(value, "="):
		r, err := parseRule(value)
		return []workerRule{r}, err
	case err != nil:
		return nil, err
	case info.Size() > maxRules:
		return nil, fmt.Errorf("%s has %d bytes, which is too large for rules", value, info.Size())
	}
	text, err := os.ReadFile(value)
	if err != nil {
		return nil, err
	}
	var rules []workerRule
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line := strings.TrimSpace(string(line))
		if line == "" || line[0] == '#' {
			continue
		}
		r, err := parseRule(line)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", value, number, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// parseRule parses SERVICE=PEER,PEER… Errors do not repeat the peers, which may be keys.
func parseRule(text string) (r workerRule, err error) {
	service, peers, ok := strings.Cut(text, "=")
	if !ok {
		return r, errors.New("a rule is SERVICE=PEER, with commas between several peers")
	}
	r.service, r.prefix = strings.CutSuffix(strings.TrimSpace(service), "*")
	if r.service == "" && !r.prefix {
		return r, errors.New("a rule begins with the name of a service, or *")
	}
	for i, peer := range strings.Split(peers, ",") {
		if peer = strings.TrimSpace(peer); peer == "" {
			continue
		}
		allows := parsePeer(peer)
		if allows == nil {
			return r, fmt.Errorf("peer %d is neither a public key nor an address, a network, user:NAME, local or any", i+1)
		}
		r.allowed = append(r.allowed, allows)
	}
	return r, nil
}

// parsePeer returns a function that recognizes a peer, or nil if the text is invalid.
func parsePeer(text string) func(*sockets.Peer) bool {
	if user, ok := strings.CutPrefix(text, "user:"); ok && user != "" {
		return func(p *sockets.Peer) bool { return p.UserID() == user }
	}
	switch text {
	case "any":
		return func(*sockets.Peer) bool { return true }
	case "local":
		local := majordomo.AllowWorkers(sockets.Options{})
		return func(p *sockets.Peer) bool { return local(majordomo.TitanicPrefix, p) }
	}
	if key, err := zmtp.ParsePublicKey(text); err == nil {
		return func(p *sockets.Peer) bool { return p.PublicKey() == key }
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil
		}
		network = netip.PrefixFrom(ip, ip.BitLen())
	}
	return func(p *sockets.Peer) bool {
		host, _ := p.Property("Peer-Address")
		ip, err := netip.ParseAddr(host)
		return err == nil && network.Contains(ip.Unmap().WithZone(""))
	}
}
