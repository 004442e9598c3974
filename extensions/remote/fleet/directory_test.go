package fleet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit"
)

// writeDirectory writes files as a ConfigMap is mounted: as links into a folder that is replaced atomically.
func writeDirectory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, errors.Join(os.Mkdir(filepath.Join(dir, "..2024"), 0o700), os.Symlink("..2024", filepath.Join(dir, "..data"))))
	for name, text := range files {
		must(t, errors.Join(os.WriteFile(filepath.Join(dir, "..data", name), []byte(text), 0o600), os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))))
	}
	return dir
}

const twoCohorts = `version: 1
rollout: {timeout: 1s, gates: {series: 50%, absent_fields: 1000, lost_devices: 0}}
cohorts:
- name: rest
  list: a.csv
- name: h100
  priority: 10
  selector: {rack: "r*", warpgauge.models: "*H100*"}
  list: b.csv
  rollout:
    tolerance: 5%
    gates: {series: 10%}
    stages: [{labels: {canary: "true"}, soak: 5m}, {percent: 100}]
`

func TestReadDirectory(t *testing.T) {
	p := testkit.Get(ReadDirectory(writeDirectory(t, map[string]string{FleetFile: twoCohorts, "a.csv": listA,
		"b.csv": listB + "NO_SUCH_FIELD, gauge, x\n"}), nil))(t)
	first, rest := p.Cohorts[0], p.Cohorts[1]
	testkit.ErrorIf(t, first.Name != "h100" || first.Policy.Tolerance.Value != 0.05 || first.Policy.Timeout != minTimeout || len(first.Policy.Stages) != 2, "cohort %+v", first)
	if g := first.Policy.Gates; g[series] != (Limit{Value: 0.1, Relative: true}) || g[absentFields] != (Limit{Value: 1000}) || g[stalled] != (Limit{}) || len(g) != 7 {
		t.Errorf("gates %+v", g)
	}
	testkit.ErrorIf(t, len(rest.Policy.Stages) != 3 || rest.Policy.Stages[0].Percent != 1 || rest.Policy.Gates[series].Value != 0.5, "cohort %+v", rest)
	matches := func(want bool, rack string, models ...string) {
		t.Helper()
		labels := map[string]string{"rack": rack, "warpgauge.models": strings.Join(models, ",")}
		testkit.Equal(t, "matches rack "+rack+" with "+labels["warpgauge.models"], want, first.Selector.matches(labels))
	}
	matches(true, "r7", "A100", "NVIDIA H100 80GB HBM3")
	matches(true, "r7/a", "NVIDIA H100/x")
	matches(false, "r7", "A100")
	matches(false, "x", "H100")
	matches(false, "r7")
}

// TestBadDirectories: one mistake rejects the whole directory, and the error names its place.
func TestBadDirectories(t *testing.T) {
	const head = "version: 1\ncohorts:\n- name: a\n  list: a.csv\n"
	f := func(fleet, list, want string) {
		t.Helper()
		files := map[string]string{FleetFile: fleet, "a.csv": list}
		if fleet == "" {
			delete(files, FleetFile)
		}
		p, err := ReadDirectory(writeDirectory(t, files), func([]byte, string) ([]byte, error) { return nil, errors.New("no YAML") })
		testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), want), "%q: plan %v, error %v, want %q", fleet, p, err, want)
	}
	f("", listA, "fleet.yaml")
	f("version: 1\ncohorts:\n- name: a\n", listA, "list")
	f("version: 1\ncohorts: [", listA, "fleet.yaml")
	f("version: 2\n", listA, "version: 1")
	f("version: 1\n", listA, "0 cohorts")
	f(head+"---\nversion: 1\n", listA, "more than one document")
	f(head+"  lisst: b.csv\n", listA, "lisst")
	f(head+"- name: a\n  list: a.csv\n", listA, "another cohort")
	f("version: 1\ncohorts:\n- name: A_b\n  list: a.csv\n", listA, "name")
	f(head+"- name: b\n  list: ../../etc/passwd\n", listA, "escapes")
	f(head+"- name: b\n  list: b.csv\n", listA, "b.csv")
	f(head, "", "no field")
	f(head, "garbage", "parse")
	f(head, "DCGM_FI_DEV_GPU_TEMP, gau", "list")
	f(head, strings.Repeat("#", maxListBytes+1), "too large")
	f(head+"  selector: {x: \"[\"}\n", listA, "pattern")
	f(head+"  rollout: {timeout: 1ms}\n", listA, "timeout")
	f(head+"  rollout: {tolerance: 5}\n", listA, "tolerance")
	f(head+"  rollout: {gates: {x: 1}}\n", listA, "gates: they are absent_fields")
	f(head+"  rollout: {gates: {series: -1}}\n", listA, "invalid limit")
	f(head+"  rollout: {stages: [{percent: 50}]}\n", listA, "last stage")
	f(head+"  rollout: {stages: [{percent: 50}, {percent: 20}, {percent: 100}]}\n", listA, "stage 2: percent must be more than the 50")
	f(head+"  rollout: {stages: [{soak: 1m}, {percent: 100}]}\n", listA, "percent or labels")
	f(head+"  rollout: {stages: [{percent: 200}]}\n", listA, "at most 100")
	f(strings.Replace(head, "a.csv", "a.yaml", 1), listA, "a.yaml")
	if _, err := ReadDirectory(filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a directory that is not there was read")
	}
}

// TestWatch: Watch waits for two equal readings, and so ignores a directory in the middle of a write.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readings := []*Plan{{Hash: "1"}, {Hash: "1"}, {Hash: "2"}, nil, {Hash: "2"}, {Hash: "3"}, {Hash: "4"}, {Hash: "4"}, {Hash: "4"}}
		var taken []string
		ctx, cancel := context.WithCancel(t.Context())
		Watch(ctx, time.Second, func() (*Plan, error) {
			p := readings[0]
			if readings = readings[1:]; len(readings) == 0 {
				cancel()
			}
			if p == nil {
				return nil, errors.New("half written")
			}
			return p, nil
		}, func(p *Plan, err error) {
			if err != nil {
				taken = append(taken, "error")
			} else {
				taken = append(taken, p.Hash)
			}
		})
		testkit.Equal(t, "taken", "1 error 4 4", strings.Join(taken, " "))
	})
}
