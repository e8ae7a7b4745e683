package main

import (
	"errors"
	"fmt"

	"clustermap/chp"
	"clustermap/internal/command"
	"clustermap/internal/jsonline"
	"clustermap/internal/kvjson"

	"github.com/spf13/cobra"
)

// conditions are the flags of a command that changes a key only if something holds.
type conditions struct {
	absent, present bool
	sequence        sequence
	value           string
	given           func(flag string) bool
}

// register adds the flags to cmd, which changes a key or, if absent is false, deletes it: of
// a key that is not there is nothing to delete.
func (o *conditions) register(cmd *cobra.Command, absent bool) {
	flags := cmd.Flags()
	o.given = flags.Changed
	names := []string{"if-present", "if-seq", "if-value"}
	zero := ""
	if absent {
		names, zero = append(names, "if-absent"), "; 0 means that it does not exist"
		flags.BoolVar(&o.absent, "if-absent", false, "only if the key does not exist")
	}
	flags.BoolVar(&o.present, "if-present", false, "only if the key exists")
	flags.Var(&o.sequence, "if-seq", "only if the key's last update has the sequence number `N`"+zero)
	flags.StringVar(&o.value, "if-value", "", "only if the key has the value `V`")
	command.Exclude(cmd, names...)
}

// options returns the condition that was given, if any, for chp.Client.SetIf.
func (o *conditions) options() []chp.IfOption {
	switch {
	case o.absent:
		return []chp.IfOption{chp.IfAbsent()}
	case o.present:
		return []chp.IfOption{chp.IfPresent()}
	case o.given("if-value"):
		return []chp.IfOption{chp.IfValue([]byte(o.value))}
	case !o.given("if-seq"):
		return nil
	}
	return []chp.IfOption{chp.IfSequence(int64(o.sequence))}
}

// judged is confirm for an update under conditions. After a conflict it prints, with --json,
// what is in the way.
func (c *client) judged(cmd *cobra.Command, err error, asJSON bool) error {
	conflict, ok := errors.AsType[*chp.ConflictError](err)
	switch {
	case errors.Is(err, chp.ErrNoTransactions):
		return fail(exitRefused, "nothing was sent: %s judges no conditions; it is of another implementation, of an earlier version, or of a Clone model below 6", c.Server())
	case !ok:
		return c.confirm(err)
	}
	if asJSON {
		line := jsonline.AppendField([]byte(`{"conflict":true,`), "key", []byte(conflict.Key))
		if conflict.HasValue {
			line = jsonline.AppendField(append(line, ','), "value", conflict.Value)
		}
		line = append(kvjson.AppendSequence(append(line, ','), "seq", conflict.Sequence), '}', '\n')
		if _, err := cmd.OutOrStdout().Write(line); err != nil {
			return err
		}
	}
	return fail(exitRefused, "%s; nothing was changed", conflictText(conflict))
}

// conflictText says what is in the way of an update.
func conflictText(e *chp.ConflictError) string {
	if e.Sequence == 0 {
		return fmt.Sprintf("conflict: %q is not in the map", e.Key)
	}
	return fmt.Sprintf("conflict: %q has sequence number %d", e.Key, e.Sequence)
}
