package main

import (
	"fmt"
	"io"
	"strings"

	"clustermap/internal/command"
)

// warnOutside warns about keys, or the beginnings of keys, without a slash at the beginning.
func (n *connection) warnOutside(keys ...string) {
	var o outside
	for _, key := range keys {
		o.add([]byte(key))
	}
	o.warn(n.stderr)
}

// outside counts keys without a slash at the beginning. No subtree has such a key: those
// who watch or dump subtrees do not see it.
type outside struct {
	count int
	first string
}

func (o *outside) add(key []byte) {
	if len(key) == 0 || key[0] == '/' {
		return
	}
	if o.count++; o.count == 1 {
		o.first = string(key)
	}
}

// warn writes a line on stderr if there are such keys.
func (o *outside) warn(stderr io.Writer) {
	const why = "without a slash at the beginning: it is in no subtree, only in the whole map"
	switch key := command.ShellWord(o.first); o.count {
	case 0:
	case 1:
		command.Say(stderr, fmt.Sprintf("chp: warning: the key %s is %s\n", key, why))
	default:
		command.Say(stderr, fmt.Sprintf("chp: warning: %d keys, such as %s, are %s\n", o.count, key, strings.Replace(why, "it is", "they are", 1)))
	}
}
