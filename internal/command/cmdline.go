package command

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Args refuses less than low and more than high arguments; math.MaxInt is no limit. The names of the arguments in
// the error are those of the command's Use.
func Args(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if low <= len(args) && len(args) <= high {
			return nil
		}
		want := Count(high, "argument")
		switch {
		case high == math.MaxInt:
			want = "at least " + Count(low, "argument")
		case low == 0:
			want = "at most " + want
		case low < high:
			want = fmt.Sprintf("%d to %s", low, want)
		}
		_, names, _ := strings.Cut(cmd.Use, " ")
		return fmt.Errorf("%s takes %s, %s, but got %d", cmd.CommandPath(), want, names, len(args))
	}
}

// Exclude refuses more than one of the flags.
func Exclude(cmd *cobra.Command, flags ...string) {
	cmd.MarkFlagsMutuallyExclusive(flags...) // so that the shell completes only one of them
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if before != nil {
			if err := before(cmd, args); err != nil {
				return err
			}
		}
		var set []string
		for _, name := range flags {
			if cmd.Flags().Changed(name) {
				set = append(set, "--"+name)
			}
		}
		if len(set) > 1 {
			return fmt.Errorf("%s exclude each other", strings.Join(set, " and "))
		}
		return nil
	}
}

// flagError explains the error of a flag that cannot be parsed.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "" && strings.Contains(cmd.Use, " "):
		return fmt.Errorf("unknown flag -%s; write -- before a value that begins with -", unknown.GetSpecifiedShortnames())
	case !errors.As(err, &invalid):
		return err
	}
	flag, value := invalid.GetFlag(), invalid.GetValue()
	want := ""
	switch flag.Value.Type() {
	case "duration":
		want = "a duration such as 30s or 24h"
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			if _, err := time.ParseDuration(value + "s"); err == nil {
				want += "; did you mean " + value + "s?"
			}
		}
	case "bool":
		want = "true or false"
	case "float64":
		want = "a number"
	case "int", "int64":
		want = "a whole number"
		if errors.As(err, &number) && errors.Is(number, strconv.ErrRange) {
			return fmt.Errorf("--%s %s: the number is too large", flag.Name, value)
		}
	default:
		if cause := errors.Unwrap(invalid); cause != nil {
			return fmt.Errorf("--%s: %w", flag.Name, cause)
		}
		return err
	}
	return fmt.Errorf("--%s: %q is not %s", flag.Name, value, want)
}
