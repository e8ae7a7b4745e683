package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"clustermap/internal/symlink"
	"clustermap/internal/visible"

	"github.com/pelletier/go-toml/v2"
)

// contextVariable names the context of a command without --context.
const contextVariable = "CHP_CONTEXT"

// maxContexts is the maximum size of the file of contexts in bytes.
const maxContexts = 1 << 20

// contexts is the content of the file of contexts.
type contexts struct {
	Current  string                   `toml:"current,omitempty"`
	Contexts map[string]serverContext `toml:"contexts,omitempty"`
}

// serverContext is the part of a context that describes servers.
type serverContext struct {
	Servers        []string `toml:"servers" json:"servers"`
	CurveKey       string   `toml:"curve_key,omitempty" json:"curve_key,omitempty"`               // the name of a file
	CurveServerKey string   `toml:"curve_server_key,omitempty" json:"curve_server_key,omitempty"` // a public key or the name of a file
}

// contextsFile returns the name of the file of contexts.
func contextsFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fail(exitRefused, "there is no place for contexts: %w", err)
	}
	return filepath.Join(dir, "chp", "contexts.toml"), nil
}

// readContexts reads the file of contexts. Without a file there are none.
func readContexts() (contexts, error) {
	c := contexts{Contexts: map[string]serverContext{}}
	name, err := contextsFile()
	if err != nil {
		return c, err
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // such as the home directory /dev/null
		return c, nil
	}
	if err == nil && info.Size() > maxContexts {
		err = fmt.Errorf("%s has %d bytes, which is too large", name, info.Size())
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return c, fail(exitRefused, "cannot read the contexts: %w", err)
	}
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, fail(exitRefused, "%s is not a file of contexts: %s", name, tomlError(err))
	}
	if c.Contexts == nil {
		c.Contexts = map[string]serverContext{}
	}
	return c, nil
}

// tomlError returns the line of an error of package toml, and the error.
func tomlError(err error) string {
	var missing *toml.StrictMissingError
	var malformed *toml.DecodeError
	switch {
	case errors.As(err, &missing) && len(missing.Errors) > 0:
		line, _ := missing.Errors[0].Position()
		return fmt.Sprintf("line %d: unknown field %s", line, strings.Join(missing.Errors[0].Key(), "."))
	case errors.As(err, &malformed):
		line, _ := malformed.Position()
		return fmt.Sprintf("line %d: %s", line, strings.TrimPrefix(malformed.Error(), "toml: "))
	}
	return err.Error()
}

// write replaces the file of contexts atomically. Only the user can read it.
func (c *contexts) write() error {
	name, err := contextsFile()
	if err != nil {
		return err
	}
	if name, err = symlink.Target(name); err == nil {
		err = c.replace(name)
	}
	if err != nil {
		return fail(exitRefused, "cannot write the contexts: %w", err)
	}
	return nil
}

func (c *contexts) replace(name string) (err error) {
	text, err := toml.Marshal(c)
	if err != nil {
		return err
	}
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "contexts-*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// find returns a context.
func (c *contexts) find(name string) (serverContext, error) {
	one, ok := c.Contexts[name]
	if !ok {
		return one, fail(exitRefused, "there is no context %q; chp context list shows them", name)
	}
	return one, nil
}

// checkContext returns an error if a name is not fit for a context.
func checkContext(name string) error {
	for _, r := range name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r)) {
			return fail(exitUsage, "%q is not a name of a context: use letters, digits, - _ and .", name)
		}
	}
	if name == "" || len(name) > 64 {
		return fail(exitUsage, "the name of a context has 1 to 64 characters")
	}
	return nil
}

// useContext sets the servers and keys of n from a context, if one applies: that of
// --context, or, if neither a flag nor a variable names servers, that of $CHP_CONTEXT or
// of chp context use. Flags stay as they are.
func (n *connection) useContext() error {
	named := n.context
	if named == "" && (len(n.flags) > 0 || os.Getenv(serverVariable) != "") {
		return nil
	}
	if named == "" {
		named = os.Getenv(contextVariable)
	}
	if named == "" {
		// Without a home directory there is no current context.
		if _, err := os.UserConfigDir(); err != nil {
			return nil
		}
	}
	all, err := readContexts()
	if named == "" && errors.Is(err, fs.ErrPermission) {
		// The home directory may be another user's: then there is no current context.
		if n.stderr != nil {
			fmt.Fprintf(n.stderr, "chp: %s; going on without a context\n", visible.String(err.Error()))
		}
		return nil
	}
	if err != nil {
		return err
	}
	if named == "" {
		named = all.Current
	}
	if named == "" {
		return nil
	}
	one, err := all.find(named)
	if err != nil {
		return err
	}
	if len(n.flags) == 0 {
		n.flags = one.Servers
	}
	n.curve.UseDefaults(one.CurveKey, one.CurveServerKey)
	return nil
}
