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
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
)

// Terminal reports whether w is a terminal.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// Run shows the nodes on a terminal until a key or the end of ctx. It asks each once in an interval. environ is as
// os.Environ returns it.
func Run(ctx context.Context, targets []Target, out io.Writer, interval time.Duration, environ []string) error {
	f := newFleet(targets, interval)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f.run(ctx) })
	defer wg.Wait()
	defer cancel()
	_, err := tea.NewProgram(newModel(f), tea.WithContext(ctx), tea.WithOutput(out), tea.WithEnvironment(environ)).Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		return nil
	}
	return err
}
