package amd

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

// documented returns unit and extra labels of AMD's documented fields by name.
func documented(t *testing.T) map[string][2]string {
	t.Helper()
	text := testkit.Get(os.ReadFile("testdata/amd-exporter.csv"))(t)
	out := map[string][2]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(strings.TrimSpace(line), ","); cells[0][0] != '#' {
			out[cells[0]] = [2]string{cells[1], cells[2]}
		}
	}
	return out
}

// TestAMDDocumented: every documented name is served with the documented unit and labels, or is
// absent with a reason. There are no other names, and none collides with ours.
func TestAMDDocumented(t *testing.T) {
	want := documented(t)
	seen := map[string]bool{}
	for _, n := range Metrics() {
		if n.Field == "GPU_PROF_*" {
			for name := range want {
				seen[name] = seen[name] || strings.HasPrefix(name, "GPU_PROF_")
			}
			continue
		}
		facts, ok := want[n.Field]
		if !ok || seen[n.Field] {
			t.Errorf("%s is not documented, or there twice", n.Field)
		}
		seen[n.Field] = true
		for _, prefix := range []string{"", "amd_"} {
			if _, _, taken := field.ByName(n.Name(prefix)); taken {
				t.Errorf("%s is a name of ours", n.Name(prefix))
			}
		}
		if n.Help == "" || (n.Absent == "") != (len(n.Sources) > 0 || n.Field == Nodes || n.Field == Health) {
			t.Errorf("%s: no help, or neither source nor reason: %+v", n.Field, n)
		}
		if n.Absent == "" && facts[0] != "" && n.Unit != facts[0] {
			t.Errorf("%s is in %q, AMD's in %q", n.Field, n.Unit, facts[0])
		}
		for _, s := range n.Sources {
			d, ok := field.ByID(s.ID)
			if !ok || d.Kind == field.String || s.Scale == 0 {
				t.Errorf("%s: no reading %d, or no scale", n.Field, s.ID)
				continue
			}
			labels := map[string]bool{}
			for _, l := range s.Add {
				labels[l.Name] = true
			}
			if s.Index.To != "" {
				labels[s.Index.To] = true
			}
			got := slices.Sorted(maps.Keys(labels))
			testkit.Equal(t, "labels of "+n.Field+", AMD's and ours", strings.Fields(facts[1]), got, cmpopts.EquateEmpty())
			testkit.Equal(t, fmt.Sprintf("unit of %s, which is %s × %v", n.Field, d.Name, s.Scale), unitTimes(d.Unit, s.Scale), n.Unit)
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestAMDTwice: limits of clocks have gpu_clock's first index of the type, and AMD's two names of an engine are one reading.
func TestAMDTwice(t *testing.T) {
	of := map[string][]Source{}
	for _, n := range Metrics() {
		of[n.Field] = n.Sources
	}
	for i, s := range of["GPU_CLOCK"] {
		want, got := slices.Concat([]Pair{{"clock_index", fmt.Sprint(s.Index.Plus)}}, s.Add), of["GPU_MAX_CLOCK"][i].Add
		testkit.Equal(t, "limits of a clock", want[len(want)-2:], got)
	}
	for _, engine := range []string{"GPU_VCN_", "GPU_JPEG_"} {
		old, now := of[engine+"ACTIVITY"][0], of[engine+"BUSY_INSTANTANEOUS"][0]
		old.Index.To = now.Index.To
		testkit.Equal(t, engine+"ACTIVITY and its newer name", old, now)
	}
}

// unitTimes returns the unit of a scaled reading in AMD's spelling.
func unitTimes(unit string, scale float64) string {
	out, ok := map[string]map[float64]string{
		"celsius": {1: "celsius"}, "W": {1: "W"}, "mJ": {1000: "µJ"}, "%": {1: "%"}, "ratio": {100: "%"}, "V": {1000: "mV"},
		"Hz": {1e-6: "MHz"}, "MiB": {1: "MB"}, "bytes": {1.0 / (1 << 20): "MB", 1.0 / 1024: "KB"}, "1/s": {1e-9: "GT/s"},
		"bytes/s": {8e-6: "Mb/s", 1e-9: "GB/s"}, "cycles": {1: "cycles"}, "": {1: ""},
	}[unit][scale]
	if !ok {
		return "?"
	}
	return out
}

func TestNewNames(t *testing.T) {
	f := func(in Settings, fields int, labels string, want ...string) {
		t.Helper()
		n, why := NewNames(in, nil)
		if got := strings.Join(n.labelNames(), " "); len(n.metrics) != fields || got != labels || !slices.Equal(why, want) {
			t.Errorf("%+v:\n%d names, labels %s\n%q\nwant %d, %s\n%q", in, len(n.metrics), got, why, fields, labels, want)
		}
		again, why := NewNames(n.Settings, nil)
		if len(why) > 1 || len(again.metrics) != fields {
			t.Errorf("%+v: once more: %q, %d names", in, why, len(again.metrics))
		}
	}
	all := 0
	for _, n := range Metrics() {
		if n.Absent == "" {
			all++
		}
	}
	const always = "card_model container deployment_mode gpu_compute_partition_type gpu_id gpu_memory_partition_type gpu_partition_id hostname " +
		"job_id job_partition job_user namespace pod serial_number"
	f(Settings{}, all, always)
	f(Settings{Fields: []string{"GPU_CLOCK", "gpu_clock", "GPU_PROF_SM_ACTIVE", "PCIE_RX", "GPU_CLOK"}}, 1, always,
		`"GPU_PROF_SM_ACTIVE": the profiler allows one client at a time; it is not used`,
		`"PCIE_RX": AMD's exporter does not fill it either`,
		`"GPU_CLOK": AMD's exporter has no field of that name; did you mean GPU_CLOCK?`)
	f(Settings{Fields: []string{"GPU_PROF_SM_ACTIVE"}}, all, always,
		`"GPU_PROF_SM_ACTIVE": the profiler allows one client at a time; it is not used`, "no field is left: all are served")
	f(Settings{Labels: []string{"gpu_uuid", "POD", "KFD_PROCESS_ID", "RACK"}}, all, strings.Replace(always, "hostname", "gpu_uuid hostname", 1),
		`"KFD_PROCESS_ID": each process would make new series; /api/v1/devices lists the processes of a GPU`, `"RACK": AMD's exporter has no label of that name`)
	f(Settings{Prefix: "9-"}, all, always, `prefix "9-" cannot begin the name of a metric: names have none`)
	f(Settings{Custom: []Pair{{"Rack", "a"}, {"RACK", "b"}, {"gpu_id", "c"}, {"clock_type", "d"}, {"ra ck", "e"}, {"__x", "f"}, {"le", "g"}, {"cluster_name", "h"}, {"hostname", "i"}}},
		all, strings.Replace(strings.Replace(always, "card_model", "card_model cluster_name", 1), "serial", "rack serial", 1),
		`custom label "rack": it is there twice`, `custom label "gpu_id": it says which GPU a series is of`,
		`custom label "clock_type": series of gpu_clock are distinguished by it`,
		`custom label "ra ck": it is not a label name: use letters, digits and underscores, and no digit first`,
		`custom label "__x": names with two underscores first are Prometheus' own`, `custom label "le": Prometheus gives it another meaning`,
		`custom label "hostname": it says which node a series is of`)
	f(Settings{PodLabels: []Pair{{"Team", "team"}, {"rack", "x"}}, Custom: []Pair{{"rack", "a"}}}, all, strings.Replace(always, "serial_number", "rack serial_number team", 1),
		`label "rack": the custom label of that name is shown, not the pod's`)
	long := strings.Repeat("a", 300)
	_, why := NewNames(Settings{Prefix: long, Custom: []Pair{{"x", long}, {long, "x"}}}, nil)
	if got := strings.Join(why, "\n"); len(why) != 3 || strings.Count(got, "it is longer than 256 bytes") != 2 {
		t.Errorf("texts that each series would repeat: %s", got)
	}
}
