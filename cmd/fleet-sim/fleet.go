package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/pkg/field"
)

// fleet is all nodes and the one port that serves them.
type fleet struct {
	o     options
	nodes []*node
	named map[string]*node
}

func newFleet(o options) (*fleet, error) {
	list, err := readCounters(o.counters)
	if err != nil {
		return nil, err
	}
	f := &fleet{o: o, named: make(map[string]*node, o.nodes)}
	var loads [loadSets]*fake.Curves
	for i := range loads {
		loads[i] = fake.NewCurves(uint64(i) + 1)
	}
	for i := range o.nodes {
		n, err := newNode(o, i, loads[i%loadSets], list)
		if err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, n)
		f.named[n.host] = n
	}
	return f, nil
}

// loadSets is the number of sets of load curves that the nodes share. A set takes nearly 1 MB, more than the rest of a node.
const loadSets = 8

// readCounters reads a file or, if it does not exist, the built-in list with that name.
func readCounters(name string) (field.List, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		if text, err = etc.Files().ReadFile(name); err != nil {
			names, _ := fs.Glob(etc.Files(), "*.csv") // the pattern is valid
			return field.List{}, fmt.Errorf("read --counters: %w; there are %s", err, strings.Join(names, ", "))
		}
	}
	list, problems, err := field.Parse(bytes.NewReader(text), field.ParseOptions{File: name})
	if err != nil {
		return field.List{}, fmt.Errorf("parse counters file %q: %w %v", name, err, problems)
	}
	return list, nil
}

// run serves until ctx ends. The nodes start at different times within an interval, because the nodes of a real fleet
// do not tick together either.
func (f *fleet) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i, n := range f.nodes {
		wait := f.o.interval * time.Duration(i) / time.Duration(len(f.nodes))
		wg.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
				n.run(ctx)
			}
		})
	}
	return f.serve(ctx, out)
}
