// Package configtest parses command lines for tests of settings.
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

// Parse parses a command line with the flags of the core and the extensions. Its error lists the problems of the
// environment, the command line and the settings.
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
