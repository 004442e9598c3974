package fake

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// openProcesses opens the collector of processes of a world.
func openProcesses(t *testing.T, w *World) *node {
	t.Helper()
	c := w.Processes()
	sources, err := c.Open(t.Context(), field.List{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for _, s := range sources {
		if _, err := collector.ProcessBlocks(len(s.Devices()), s.Columns()); err != nil {
			t.Fatal(err)
		}
	}
	return &node{t, w, nil, sources}
}

func (n *node) wantProcesses(what string, gpu, count int, list ...collector.Process) {
	n.tb.Helper()
	row, err := sampleRow(n.sources[gpu])
	if err != nil {
		n.tb.Errorf("%s: %v", what, err)
	}
	got, total := collector.GetProcesses(nil, row)
	if diff := cmp.Diff(list, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" || total != count {
		n.tb.Errorf("%s: count %d, want %d; processes (-want +got):\n%s", what, total, count, diff)
	}
}

func TestProcesses(t *testing.T) {
	file, on, _ := switchFile(t)
	spec, err := ParseSpec(strings.NewReader(`
profile: dgx-a100-mig
processes:
  - {device: 0, pid: 4712, busy: 7}
  - {device: 4-5, pid: 4713, memory: 5, busy: 35.5, at: 10s, for: 10s}
  - {device: 4, pid: 4714, while: ` + file + `}
`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	w := newWorld(t, Options{Spec: spec, Now: func() time.Time { return now }})
	l := openProcesses(t, w)
	if len(l.sources) != 8 {
		t.Fatalf("%d sources, want 8", len(l.sources))
	}
	nan := math.NaN()
	l.wantProcesses("on the board", 0, 1, collector.Process{PID: 4712, Memory: nan, Busy: 7, Flags: collector.ProcessCompute})
	l.wantProcesses("not there yet", 4, 0)
	now = now.Add(10 * time.Second)
	l.wantProcesses("there", 5, 1, collector.Process{PID: 4713, Memory: 5, Busy: 35.5, Flags: collector.ProcessCompute})
	now = now.Add(10 * time.Second)
	l.wantProcesses("gone", 5, 0)
	on()
	now = now.Add(time.Hour)
	l.wantProcesses("while the file is there", 4, 1, collector.Process{PID: 4714, Memory: nan, Busy: nan, Flags: collector.ProcessCompute})

	heal := inject(t, w, Fault{Kind: Blank, GPUs: index(4)})
	l.wantProcesses("untold", 4, -1)
	heal()
	// AMD's busy is another quantity.
	amd := newWorld(t, Options{Profile: "mi300x", Spec: &Spec{Processes: []Process{{GPUs: All(), PID: 1, Memory: 1, Busy: 1}}}})
	openProcesses(t, amd).wantProcesses("AMD", 7, 1, collector.Process{PID: 1, Memory: 1, Busy: 1, Flags: collector.ProcessCompute | collector.ProcessOccupancy})
}
