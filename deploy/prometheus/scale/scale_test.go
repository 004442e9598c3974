// Package scale_test lets the real promtool and the real Prometheus read the
// configurations for large fleets.
package scale_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"warpgauge/internal/testkit/programtest"
	"warpgauge/internal/testkit/programtest/prometheustest"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPromtool(t *testing.T) {
	promtool := programtest.Find(t, "promtool")
	f := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	f("check", "config", "sharded.yml")
	f("check", "config", "--agent", "agent.yml")
}

const shards, nodes = 4, 60

// TestShards: every node belongs to exactly one of the servers, and none has nearly all.
func TestShards(t *testing.T) {
	prometheustest.Find(t)
	owners := map[string][]int{}
	var mu sync.Mutex
	t.Run("servers", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				targets := targetsOf(t, shard)
				mu.Lock()
				defer mu.Unlock()
				for _, target := range targets {
					owners[target] = append(owners[target], shard)
				}
			})
		}
	})
	parts := [shards]int{}
	for target, by := range owners {
		if len(by) != 1 {
			t.Errorf("%s is scraped by servers %v", target, by)
		}
		parts[by[0]]++
	}
	if len(owners) != nodes || slices.Max(parts[:]) > nodes/2 || slices.Min(parts[:]) == 0 {
		t.Errorf("%d of %d nodes are scraped, in parts of %v", len(owners), nodes, parts)
	}
}

// targetsOf runs the server of a number and asks what it scrapes.
func targetsOf(t *testing.T, shard int) (addresses []string) {
	t.Helper()
	var all []string
	for i := range nodes {
		all = append(all, fmt.Sprintf("192.0.2.%d:9400", i+1)) // for documentation; no host answers
	}
	targets, err := json.Marshal([]map[string]any{{"targets": all}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.json"), targets, 0o600); err != nil {
		t.Fatal(err)
	}
	server := prometheustest.Start(t, configOf(t, shard, dir))
	server.Process.Await(t, "targets", func() error {
		found, err := server.API.Targets(t.Context())
		if err != nil {
			return err
		}
		if len(found.Active) == 0 {
			return errors.New("none yet")
		}
		for _, target := range found.Active {
			addresses = append(addresses, string(target.Labels["instance"]))
		}
		return nil
	})
	return addresses
}

// configOf changes what each server changes, its number, and where the targets are.
func configOf(t *testing.T, shard int, targets string) string {
	t.Helper()
	config := read(t, "sharded.yml")
	number := fmt.Sprintf("%q", fmt.Sprint(shard))
	for _, change := range []struct {
		times     int
		old, next string
	}{
		{1, `regex: "0" } # the server's`, `regex: ` + number + ` } # the server's`},
		{1, `shard: "0"`, `shard: ` + number},
		{2, `targets/*`, targets + `/*`},
	} {
		if n := strings.Count(config, change.old); n != change.times {
			t.Fatalf("sharded.yml has %d times %q, which the test replaces, want %d", n, change.old, change.times)
		}
		config = strings.ReplaceAll(config, change.old, change.next)
	}
	return config
}
