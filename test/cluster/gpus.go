package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func (n *node) startPlugins() (string, error) {
	out, err := n.command("", n.dir, filepath.Join(n.repo, "bin/warpgauge"),
		append([]string{"devices"}, simulation()...)...)
	if err != nil {
		return "", err
	}
	if n.uuids = uuidsOf(out); len(n.uuids) < dra+1 {
		return "", fmt.Errorf("the exporter simulates %d GPUs: %s", len(n.uuids), out)
	}
	n.plugins = []*devicePlugin{
		{resource: gpu, ids: n.uuids[:wholeGPUs]},
		{resource: sharedGPU, ids: []string{n.uuids[sliced] + "::0", n.uuids[sliced] + "::1"}},
	}
	return "", n.registerPlugins()
}

// registerPlugins waits until the node offers everything. The kubelet refuses a
// registration while it starts.
func (n *node) registerPlugins() error {
	for _, p := range n.plugins {
		if err := n.wait(30*time.Second, func() error { return p.start(n.ctx) }); err != nil {
			return err
		}
		if err := n.wait(30*time.Second, func() error {
			if have, err := n.allocatable(p.resource); err != nil || have != int64(len(p.ids)) {
				return fmt.Errorf("the node offers %d of %s: %w", have, p.resource, cmp.Or(err, errNotYet))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func simulation() []string {
	return []string{"--enable-only=fake"}
}

// uuidsOf finds the UUIDs of whole GPUs in the order of their indexes.
func uuidsOf(text string) (out []string) {
	for _, word := range strings.Fields(text) {
		if word = strings.Trim(word, `",`); strings.HasPrefix(word, "GPU-") && !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out
}

// load makes all simulated GPUs busy or idle; what names the load.
func (n *node) load(what string) error {
	for _, f := range []string{"busy", "idle"} {
		if f != what {
			if err := os.Remove(n.path("fake/" + f)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return os.WriteFile(n.path("fake/"+what), nil, 0o644)
}
