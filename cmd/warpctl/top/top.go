// Package top shows what nodes are doing in a terminal: their GPUs, one GPU with plots and
// all its fields, processes and owners. It asks exporters through their JSON API, or
// servers with the same API, each over one connection and one question at a time, and
// holds a few minutes of their answers. It is used by the command warpctl top only.
//
// Update and View of the model neither wait nor ask: one goroutine per node does, and
// they take its newest answer. Run ends all that it has started.
package top

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
)

// Options say how to show nodes.
type Options struct {
	Interval time.Duration // between two questions to a node
	Environ  []string      // as os.Environ returns it: TERM, NO_COLOR, the locale
}

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// Run shows the nodes on a terminal until a key or the end of ctx.
func Run(ctx context.Context, targets []Target, out io.Writer, o Options) error {
	if kind := variable(o.Environ, "TERM"); kind == "" || kind == "dumb" {
		return repeat(ctx, targets, out, o.Interval)
	}
	f := newFleet(targets, o.Interval)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f.run(ctx) })
	defer wg.Wait()
	defer cancel()
	m := newModel(f, characters(o.Environ), variable(o.Environ, "NO_COLOR") == "", o.Interval)
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(out), tea.WithEnvironment(o.Environ)).Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		return nil
	}
	return err
}

// repeat writes the table again and again, for terminals that cannot move the cursor.
func repeat(ctx context.Context, targets []Target, out io.Writer, interval time.Duration) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		if err := Once(ctx, targets).Table(out); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if _, err := io.WriteString(out, "\n"); err != nil {
			return err
		}
	}
}

// variable returns the value of the last variable of that name.
func variable(environ []string, name string) (value string) {
	for _, v := range environ {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			value = rest
		}
	}
	return value
}

// characters are those that the locale has.
func characters(environ []string) *glyphs {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(variable(environ, name)); v != "" {
			if strings.Contains(v, "utf-8") || strings.Contains(v, "utf8") {
				return blocks
			}
			break
		}
	}
	return plain
}
