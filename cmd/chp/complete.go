package main

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"clustermap/chp"
	"clustermap/internal/kvmsg"

	"github.com/spf13/cobra"
)

const (
	// completionTimeout limits the time that the shell waits for keys.
	completionTimeout = 2 * time.Second

	// completionReach limits the part of it in which a server must be reached, unless
	// --timeout is given.
	completionReach = 300 * time.Millisecond

	// maxCompletions limits the number of keys that the shell gets.
	maxCompletions = 1000
)

// completeKeys makes the shell complete keys for the first args arguments of cmd, or for
// all of them if args is negative. The keys are those of the map at the moment. Without a
// server there are none, and no error.
func (n *connection) completeKeys(cmd *cobra.Command, args int) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, before []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if args >= 0 && len(before) >= args {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found := n.keysFor(cmd.Context(), word, treeOf(word))
		directive := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if slices.ContainsFunc(found, func(key string) bool { return strings.HasSuffix(key, "/") }) {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return found, directive
	}
}

// completeLeases is completeKeys for the leases of the map.
func (n *connection) completeLeases(cmd *cobra.Command, args int) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, before []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if args >= 0 && len(before) >= args {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return n.leasesFor(cmd.Context(), word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// leasesFor returns the leases whose identities begin with word, sorted.
func (n *connection) leasesFor(ctx context.Context, word string) []cobra.Completion {
	found := n.keysFor(ctx, kvmsg.LeasePrefix+word, nil)
	for i, key := range found {
		found[i] = strings.TrimPrefix(key, kvmsg.LeasePrefix)
	}
	return found
}

// keysFor returns the completions of a word, sorted: keys, and for keys with a slash
// after the word the part up to the slash, as for the names of files. The subtrees contain
// all keys that begin with word.
func (n *connection) keysFor(ctx context.Context, word string, subtrees []string) []cobra.Completion {
	n.stderr = nil
	n.timeout = min(n.timeout, completionTimeout)
	if ctx == nil {
		ctx = context.Background()
	}
	// For completions cobra parses the flags twice.
	var flags []string
	for _, server := range n.flags {
		if !slices.Contains(flags, server) {
			flags = append(flags, server)
		}
	}
	n.flags = flags
	if n.model == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	c, err := n.start(chp.ClientOptions{Subtrees: subtrees})
	if err != nil {
		return nil
	}
	defer c.Close()
	reach := n.timeout
	if !n.given() {
		reach = min(reach, completionReach)
	}
	unreached := time.NewTimer(reach)
	defer unreached.Stop()
	select {
	case <-c.connected:
	case <-c.nobody:
		return nil
	case <-c.refused:
		return nil
	case <-unreached.C:
		return nil
	}
	if c.WaitActive(ctx) != nil {
		return nil
	}
	var found []cobra.Completion
	for e := range c.Sorted(word) {
		key := string(e.Key)
		// The slash at the beginning does not end a part.
		if i := strings.IndexByte(key[max(len(word), 1):], '/'); i >= 0 {
			key = key[:max(len(word), 1)+i+1]
		}
		if n := len(found); n > 0 && found[n-1] == key || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
			continue
		}
		if found = append(found, key); len(found) == maxCompletions {
			break
		}
	}
	return found
}
