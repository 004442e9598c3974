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
	f := newFleet(targets, o.Interval)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f.run(ctx) })
	defer wg.Wait()
	defer cancel()
	m := newModel(f, Variable(o.Environ, "NO_COLOR") == "")
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(out), tea.WithEnvironment(o.Environ)).Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		return nil
	}
	return err
}

// Variable returns the value of the last variable of that name.
func Variable(environ []string, name string) (value string) {
	for _, v := range environ {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			value = rest
		}
	}
	return value
}
