package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"clustermap/chp"
	"clustermap/internal/command"

	"github.com/spf13/cobra"
)

func newEdit() *cobra.Command {
	var n connection
	cmd := &cobra.Command{
		Use:   "edit KEY",
		Short: "Change the value of a key in an editor",
		Long: `Writes the value of KEY to a private temporary file, runs an editor on it ($VISUAL, or
$EDITOR, or vi; on Windows notepad), sets the key to what the file has then, and prints the sequence
number of the update. The time to live goes on, and the properties and the lease stay. If
there is no such key, the file is empty, and the key is new.

If somebody else has changed the key meanwhile, nothing is set, and the exit code is 1. The
file stays after this and every other failure; standard error names it. Without a change
nothing is set.

Editors end the last line with a newline. One at the end of the file is not part of the
value, unless the value had one before.`,
		Example: `  chp edit /config/site
  EDITOR='code --wait' chp edit /config/site`,
		Args: command.Args(1, 1),
	}
	n.register(cmd, 5*time.Second)
	n.registerModel(cmd)
	n.completeKeys(cmd, 1)
	cmd.RunE = command.Runs(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		key, editor := args[0], cmp.Or(strings.TrimSpace(os.Getenv("VISUAL")), strings.TrimSpace(os.Getenv("EDITOR")))
		if editor == "" && !command.Interactive(cmd) { // vi would wait for ever
			return fail(exitRefused, "no editor: without a terminal set $VISUAL or $EDITOR")
		}
		c, err := n.openKeys(ctx, n.read, key)
		if err != nil {
			return err
		}
		before, _ := c.Lookup(key)
		before.Key = []byte(key)
		c.Close() // editing takes any time
		file, err := newEditFile(key, before.Value)
		if err != nil {
			return fail(exitRefused, "%w", err)
		}
		value, err := file.edit(ctx, cmd, cmp.Or(editor, defaultEditor))
		if err == nil && bytes.Equal(value, before.Value) {
			file.remove()
			command.Say(cmd.ErrOrStderr(), fmt.Sprintf("chp: %q is unchanged; nothing was set\n", key))
			return nil
		}
		sequence := int64(0)
		if err == nil {
			sequence, err = n.setEdited(ctx, cmd, before, value)
		}
		if err != nil {
			return file.keep(ctx, err)
		}
		file.remove()
		return printSequence(cmd.OutOrStdout(), key, sequence, false)
	})
	return cmd
}

// setEdited sets a key to its edited value, if it is still what it was before.
func (n *connection) setEdited(ctx context.Context, cmd *cobra.Command, before chp.Entry, value []byte) (int64, error) {
	key := string(before.Key)
	if len(value) == 0 {
		return 0, fail(exitRefused, "the value is empty, which would delete %q; to delete it use: chp del %s", key, operand(key))
	}
	limited, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	c, err := n.openKeys(ctx, n.read, key)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	now, _ := c.Lookup(key) // for the time to live that is left
	sequence, err := c.SetIf(limited, key, value, append(leased(before.Properties), chp.IfSequence(before.Sequence), chp.WithProperties(before.Properties), chp.WithTTL(now.TTL))...)
	if err != nil {
		return 0, c.judged(cmd, err, false)
	}
	return sequence, nil
}

// editFile is the file of a value that is being edited.
type editFile struct {
	folder, name string
	written      []byte // the content before
	end          string // what the file has at its end, and the value has not
}

// newEditFile creates a file, in a folder of its own that no other user can read.
func newEditFile(key string, value []byte) (*editFile, error) {
	folder, err := os.MkdirTemp("", "chp-edit-")
	if err != nil {
		return nil, err
	}
	f := &editFile{folder: folder, name: filepath.Join(folder, fileName(key)), written: value}
	if !bytes.HasSuffix(value, []byte{'\n'}) {
		f.end = "\n"
		if len(value) > 0 {
			f.written = append(bytes.Clone(value), '\n')
		}
	}
	if err := os.WriteFile(f.name, f.written, 0o600); err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

// fileName returns a name from which an editor can tell the kind of a file: what is behind the last
// slash of a key.
func fileName(key string) string {
	name := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, path.Base(key))
	return "value-" + name[max(0, len(name)-100):] // not a device of Windows
}

// defaultEditor is the editor that every system has, if no other is named.
var defaultEditor = map[bool]string{true: "notepad", false: "vi"}[runtime.GOOS == "windows"]

// edit runs the editor, and returns the value that the file has after it. It waits for the end
// of the editor, even if ctx ends: the key that interrupts a program may be one of the editor's.
func (f *editFile) edit(ctx context.Context, cmd *cobra.Command, editor string) ([]byte, error) {
	child := exec.Command("sh", "-c", editor+` "$1"`, "sh", f.name) // it may be a command with arguments
	if runtime.GOOS == "windows" {
		words := strings.Fields(editor)
		child = exec.Command(words[0], append(words[1:], f.name)...)
	}
	child.Stdin = cmd.InOrStdin()
	child.Stdout = cmp.Or(command.Terminal(cmd.OutOrStdout()), command.Terminal(cmd.ErrOrStderr()), os.Stdout)
	child.Stderr = command.Exact(cmd.ErrOrStderr())
	if err := child.Run(); err != nil {
		return nil, fail(exitRefused, "the editor %q failed: %w; nothing was set", editor, err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	text, err := os.ReadFile(f.name)
	if err != nil {
		return nil, fail(exitRefused, "%w", err)
	}
	return bytes.TrimSuffix(text, []byte(f.end)), nil
}

// keep returns the error of an edit, which names the file, or removes that if it has nothing
// that would be lost.
func (f *editFile) keep(ctx context.Context, err error) error {
	if text, read := os.ReadFile(f.name); read == nil && (len(text) == 0 || bytes.Equal(text, f.written)) {
		f.remove()
		return err
	}
	code := exitRefused
	if coded := (*command.Error)(nil); errors.As(err, &coded) {
		code = coded.Code
	} else if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return fail(code, "%w; the edited value is in %s", err, f.name)
}

func (f *editFile) remove() { os.RemoveAll(f.folder) }
