package command

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"clustermap/internal/visible"
	"clustermap/zmtp"
)

// warnings is where the program warns about the files of keys. Only Main sets it.
var warnings keyWarnings

// keyWarnings writes one warning about each file.
type keyWarnings struct {
	w io.Writer // nil for none

	mu   sync.Mutex
	done map[string]bool
}

// aboutFile warns if other users can read or change a file with a secret key.
func (k *keyWarnings) aboutFile(program, name string) {
	others := openTo(name)
	if k.w == nil || others == "" {
		return
	}
	k.mu.Lock()
	again := k.done[name]
	if k.done == nil {
		k.done = map[string]bool{}
	}
	k.done[name] = true
	k.mu.Unlock()
	if !again {
		Say(k.w, fmt.Sprintf("%s: warning: other users can %s the key file %s; unless that is meant: chmod 600 %s\n", program, others, visible.String(name), ShellWord(name)))
	}
}

// openTo returns what other users can do with a file of a secret key, or "". A file that
// belongs to another user may be readable for the group, as that of a service may be.
func openTo(name string) string {
	info, err := os.Stat(name)
	switch {
	case err != nil || runtime.GOOS == "windows": // it has no such modes
		return ""
	case info.Mode()&0o022 != 0:
		return "change"
	case info.Mode()&0o004 != 0, info.Mode()&0o040 != 0 && owns(info):
		return "read"
	}
	return ""
}

// keyless returns text for a message, quoted, or other words if it may be a secret key.
func keyless(text string) string {
	if HasKey(text) {
		return "the value (not shown, it may be a secret key)"
	}
	return fmt.Sprintf("%q", text)
}

// HasKey reports whether text may have a secret key in it, also a mistyped one: a word with
// about as many characters as a key, all of them those of keys.
func HasKey(text string) bool {
	const symbols = ".-:+=^!/*?&<>()[]{}@%$#"
	words := strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || strings.ContainsRune(",'\"`;", r) })
	return slices.ContainsFunc(words, func(word string) bool {
		return zmtp.KeyText-2 <= len(word) && len(word) <= zmtp.KeyText+2 && !strings.ContainsFunc(word, func(r rune) bool {
			return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune(symbols, r))
		})
	})
}
