package main

import (
	"strings"

	"clustermap/internal/command"
)

// subtreeBelow returns the subtree that may be meant by a key.
func subtreeBelow(key string) string {
	if key[0] != '/' {
		key = "/" + key
	}
	return key + "/"
}

// hintSubtrees names the arguments that c, which is in sync, has no key for, and that may
// be names of subtrees without their final slash. Whether there are such keys it does not
// ask: it would have to fetch them all.
func (n *connection) hintSubtrees(c *client, args []string) {
	for _, key := range args {
		if _, exists := c.Get(key); !exists && key != "" && !strings.HasSuffix(key, "/") {
			n.say("no key %s yet; for the keys below it watch %s", command.ShellWord(key), command.ShellWord(subtreeBelow(key)))
		}
	}
}
