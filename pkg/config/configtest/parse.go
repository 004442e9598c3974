// Package configtest parses command lines for tests of what is configured by them.
package configtest

import (
	"context"
	"io"
	"testing"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/config"
)

// Flags adds rows to a flag table, as extensions do.
type Flags interface{ Flags(*config.Set) }

// Parse parses a command line over the core's flags and those of extensions. It returns what is wrong with the
// environment, the command line or the settings.
func Parse(t testing.TB, environment map[string]string, extensions []Flags, args ...string) (*config.Set, *config.Config, error) {
	t.Helper()
	set := config.NewSet(func(name string) (string, bool) { v, ok := environment[name]; return v, ok })
	for _, e := range extensions {
		e.Flags(set)
	}
	root := &cli.Command{
		Name: "warpgauge", Flags: set.CLI(), Writer: io.Discard, ErrWriter: io.Discard,
		Action: func(context.Context, *cli.Command) error { return nil },
	}
	if err := root.Run(t.Context(), append([]string{"warpgauge"}, args...)); err != nil {
		return set, nil, err
	}
	cfg, err := set.Config()
	return set, cfg, err
}
