// Package scale_test lets the real promtool and the real Prometheus read the
// configurations for large fleets.
package scale_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// program finds a program or skips, and fails where it is required.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case slices.Contains(strings.Split(os.Getenv("WARPGAUGE_REQUIRE"), ","), name):
		t.Fatalf("%s is required by WARPGAUGE_REQUIRE but missing", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPromtool(t *testing.T) {
	promtool := program(t, "promtool")
	f := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	f("check", "config", "sharded.yml")
	f("check", "config", "--agent", "agent.yml")
}

// output is what a program has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

const shards, nodes = 4, 60

// TestShards: every node belongs to exactly one of the servers, and none has nearly all.
func TestShards(t *testing.T) {
	program(t, "prometheus")
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
	dir := t.TempDir()
	config := read(t, "sharded.yml")
	mine := strings.NewReplacer(`regex: "0" } # the server's`, fmt.Sprintf(`regex: "%d" } # the server's`, shard),
		`shard: "0"`, fmt.Sprintf(`shard: "%d"`, shard)).Replace(config)
	if shard > 0 && strings.Count(mine, fmt.Sprintf(`"%d"`, shard)) != 2 {
		t.Fatal("the number is not in two places")
	}
	var all []string
	for i := range nodes {
		all = append(all, fmt.Sprintf("192.0.2.%d:9400", i+1)) // for documentation; nobody answers
	}
	targets, err := json.Marshal([]map[string]any{{"targets": all}})
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("targets/a.json", string(targets))
	cmd := exec.Command(program(t, "prometheus"), "--config.file="+write("prometheus.yml", mine),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0",
		"--web.console.libraries="+dir, "--web.console.templates="+dir)
	var log output
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	listens := regexp.MustCompile(`msg="Listening on" address=(\S+)`)
	for deadline := time.Now().Add(90 * time.Second); len(addresses) == 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no targets; Prometheus says:\n%s", &log)
		}
		if m := listens.FindStringSubmatch(log.String()); m != nil {
			addresses = active(t, "http://"+m[1])
		}
	}
	return addresses
}

func active(t *testing.T, prometheus string) (addresses []string) {
	t.Helper()
	r, err := (&http.Client{Timeout: 10 * time.Second}).Get(prometheus + "/api/v1/targets?state=active")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var reply struct {
		Data struct {
			ActiveTargets []struct{ Labels map[string]string }
		}
	}
	if r.StatusCode != http.StatusOK || json.Unmarshal(body, &reply) != nil {
		return nil // not ready yet
	}
	for _, target := range reply.Data.ActiveTargets {
		addresses = append(addresses, target.Labels["instance"])
	}
	return addresses
}
