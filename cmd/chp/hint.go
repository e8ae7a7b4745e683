package main

import (
	"context"
	"io"
	"strings"

	"clustermap/chp"
	"clustermap/internal/command"
)

// subtreeBelow returns the subtree that may be meant by a key.
func subtreeBelow(key string) string {
	if key[0] != '/' {
		key = "/" + key
	}
	return key + "/"
}

// hintSubtrees says which arguments are names of subtrees without their final slash: c,
// which is in sync, does not have such a key, but there are keys in the subtree.
func (n *connection) hintSubtrees(ctx context.Context, c *client, args []string) {
	var keys, subtrees []string
	for _, key := range args {
		if _, exists := c.Get(key); !exists && key != "" && !strings.HasSuffix(key, "/") {
			keys, subtrees = append(keys, key), append(subtrees, subtreeBelow(key))
		}
	}
	if len(keys) == 0 {
		return
	}
	quiet := *n
	quiet.stderr, quiet.news, quiet.timeout = io.Discard, nil, min(n.timeout, reachTimeout)
	below, err := quiet.open(ctx, chp.ClientOptions{Servers: c.servers, Subtrees: subtrees})
	if err != nil {
		return // it is only a hint
	}
	defer below.Close()
	for i, subtree := range subtrees {
		count := 0
		for range below.Prefix(subtree) {
			count++
		}
		if count > 0 {
			n.say("no key %s; the subtree %s has %s", keys[i], subtree, command.Count(count, "key"))
		}
	}
}
