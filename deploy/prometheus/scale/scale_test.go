// Package scale_test reads the configurations for large fleets with the real promtool and
// with Prometheus' own relabelling.
package scale_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"warpgauge/internal/testkit/programtest"
)

func TestPromtool(t *testing.T) {
	promtool := programtest.Find(t, "promtool")
	for _, args := range [][]string{{"check", "config", "sharded.yml"}, {"check", "config", "--agent", "agent.yml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestShards: every node belongs to exactly one of the servers, and none has nearly all.
func TestShards(t *testing.T) {
	const shards, nodes = 4, 60
	text, err := os.ReadFile("sharded.yml")
	if err != nil {
		t.Fatal(err)
	}
	owners, parts := map[string][]int{}, make([]int, shards)
	for shard := range shards {
		const old = `regex: "0" } # the server's`
		if strings.Count(string(text), old) != 1 {
			t.Fatalf("sharded.yml does not say once %q", old)
		}
		var config struct {
			Configs []struct {
				Rules []*relabel.Config `yaml:"relabel_configs"`
			} `yaml:"scrape_configs"`
		}
		if err := yaml.Unmarshal([]byte(strings.Replace(string(text), old, fmt.Sprintf("regex: %q } # the server's", fmt.Sprint(shard)), 1)), &config); err != nil {
			t.Fatal(err)
		}
		for _, r := range config.Configs[0].Rules {
			r.NameValidationScheme = model.UTF8Validation
		}
		for i := range nodes {
			address := fmt.Sprintf("192.0.2.%d:9400", i+1)
			if _, keep := relabel.Process(labels.FromStrings(model.AddressLabel, address), config.Configs[0].Rules...); keep {
				owners[address] = append(owners[address], shard)
				parts[shard]++
			}
		}
	}
	for address, by := range owners {
		if len(by) != 1 {
			t.Errorf("%s is scraped by servers %v", address, by)
		}
	}
	if len(owners) != nodes || slices.Max(parts) > nodes/2 || slices.Min(parts) == 0 {
		t.Errorf("%d of %d nodes are scraped, in parts of %v", len(owners), nodes, parts)
	}
}
