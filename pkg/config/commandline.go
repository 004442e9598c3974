package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/field"
)

// ErrReported ends the process with code 1 without another message.
var ErrReported = errors.New("reported already")

// ExitError ends the process with another code than 1.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode writes err to w, unless it was reported already, and returns the exit code of a program.
func ExitCode(w io.Writer, program string, err error) int {
	if err == nil {
		return 0
	}
	if !errors.Is(err, ErrReported) {
		fmt.Fprintf(w, "%s: %v\n", program, err) //nolint:errcheck // there is no other place to report it
	}
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code
	}
	return 1
}

// WriteNotice writes a line to w, which is standard error.
func WriteNotice(w io.Writer, program, format string, args ...any) {
	text := OneLine(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
	fmt.Fprintf(w, "%s: %s\n", program, text) //nolint:errcheck // as above
}

// Prepare applies the settings that all commands of a program share. footer ends the help text of each.
func Prepare(root *cli.Command, footer string) {
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // ExitCode decides
	root.OnUsageError = UsageError
	root.EnableShellCompletion = true
	for _, c := range root.Commands {
		if c.OnUsageError == nil {
			c.OnUsageError = UsageError
		}
		c.HideHelpCommand = true
		c.CustomHelpTemplate = commandHelp(root.Name, c, footer)
	}
}

// NoArguments rejects arguments that a command would ignore.
func NoArguments(cmd *cli.Command) error {
	if word := cmd.Args().First(); word != "" {
		return fmt.Errorf("unexpected argument %q; see %s %s --help", word, cmd.Root().Name, cmd.Name)
	}
	return nil
}

// UnknownCommand explains an argument that is not a command. The usual cause is a value for the flag before it.
func UnknownCommand(root *cli.Command, word string) error {
	if slices.Contains([]string{"true", "false", "auto"}, strings.ToLower(word)) {
		return fmt.Errorf("unexpected argument %q: write --flag=%s, with an equals sign", word, word)
	}
	var names []string
	for _, c := range root.Commands {
		names = append(names, c.Name)
	}
	return fmt.Errorf("unknown command %q%s; see %s --help", word, didYouMean(word, names), root.Name)
}

// didYouMean returns the candidate nearest to word, or "" if none is near.
func didYouMean(word string, candidates []string) string {
	if best, ok := field.Nearest(word, candidates); ok && word != "" {
		return fmt.Sprintf(" (did you mean %s?)", best)
	}
	return ""
}

// UsageError explains a slip in the flags of a command, without the library's whole help.
func UsageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	if m := badValue.FindStringSubmatch(err.Error()); m != nil {
		return badFlag(cmd, m[2], m[1], m[3])
	}
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err
	}
	var names []string
	for _, f := range slices.Concat(cmd.Flags, cmd.Root().Flags) {
		names = append(names, "--"+f.Names()[0])
	}
	name = "--" + strings.TrimLeft(name, "-")
	command := cmd.Root().Name
	if cmd != cmd.Root() {
		command += " " + cmd.Name
	}
	return fmt.Errorf("unknown flag %s%s; see %s --help", name, didYouMean(name, names), command)
}

// badValue parses the library's error about a value into value, flag and reason.
var badValue = regexp.MustCompile(`(?s)^invalid value (".*?") for flag -+([^:]+): (.*)$`)

// badFlag explains why a value is invalid. The library's own types need it; other types explain themselves.
func badFlag(cmd *cli.Command, name, value, why string) error {
	for _, f := range slices.Concat(cmd.Flags, cmd.Root().Flags) {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *cli.DurationFlag:
			if !strings.HasPrefix(why, "write ") { // a Validator's text
				why = "write a duration with its unit, such as 10s"
			}
		case *cli.IntFlag:
			why = "write a whole number"
		case *cli.FloatFlag:
			why = "write a number"
		case *cli.BoolFlag:
			why = "write true or false"
		case *cli.StringFlag, *cli.StringSliceFlag:
		default:
			return errors.New(why)
		}
		break
	}
	return fmt.Errorf("--%s is %s: %s", name, value, why)
}
