// Package top shows the activity of nodes in a terminal: GPUs, one GPU with plots and all fields, processes and owners. It
// polls exporters, or servers with the same JSON API, over one connection each with one request at a time. It keeps a few
// minutes of their answers. Only the command warpctl top uses it.
//
// The model's Update and View never block: one goroutine per node polls, and they use its latest
// answer. Run ends everything that it starts.
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

// Run shows the nodes on a terminal until a key ends it or ctx ends. It polls each node once per interval. environ
// has the format of os.Environ.
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
