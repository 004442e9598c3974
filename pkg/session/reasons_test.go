package session

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
)

// explaining is a stub with explanations.
type explaining struct {
	*stub
	explanations []collector.Explanation
	absent       []collector.Absence
}

func (e *explaining) Explanations() []collector.Explanation { return e.explanations }
func (e *explaining) Absent() []collector.Absence           { return e.absent }

// Reasons have the numbers of the shown devices, and a column that the selection hides has a reason, too.
func TestReasonsOfWhatIsShown(t *testing.T) {
	mig := hardware(1, 0, 0, map[int][]string{0: {"1", "2"}})
	src := &explaining{mig[0].(*stub), []collector.Explanation{
		{Reason: collector.ReasonUnsupported, Detail: "no fan\x00"}, {Reason: "nonsense", Detail: "?"},
	}, []collector.Absence{
		{Device: 0, Field: 191, Explanation: 0}, {Device: 2, Field: 203, Explanation: 0}, {Device: 3, Field: 203, Explanation: 1},
		{Device: 9, Field: 203, Explanation: 0}, {Device: -1, Field: 203, Explanation: 0}, {Device: 0, Field: 204, Explanation: 2},
	}}
	f := func(gpus string, want ...string) {
		t.Helper()
		v := bind(t, oneField, Options{Select: choose(t, gpus, "f", "f")}, src).sources[0]
		var got []string
		for _, a := range v.Absent {
			e := v.Explanations[a.Explanation]
			got = append(got, fmt.Sprintf("%s %d %s: %s", v.Devices[a.Device].ID, a.Field, e.Reason, e.Detail))
		}
		slices.Sort(got)
		testkit.Equal(t, fmt.Sprintf("-d %s", gpus), want, got)
	}
	f("f", "GPU-0 191 unsupported: no fan?", "GPU-0 252 other_collector: the instances of the GPU report it",
		"GPU-0/1 203 unsupported: no fan?", "GPU-0/2 203 unknown: ?")
	f("i:2", "GPU-0/2 203 unknown: ?")
}

// Readers of the ring receive the reasons in blank cells.
func TestReasonsOfCells(t *testing.T) {
	util, _, _ := field.ByName("DCGM_FI_DEV_GPU_UTIL")
	var why collector.Absences
	denied := why.Blank(collector.ReasonPermission, "root only")
	src := &explaining{stub: &stub{devices: devices(1), columns: []collector.Column{{Field: util.ID}, {Field: 204}}}, explanations: why.Explanations()}
	value := denied
	src.sample = func(row []float64, due []bool) error { row[0] = value; return nil }
	w, n := testWorker(t, src, list(util), Selection{}), uint64(0)
	f := func(v float64, want collector.Explanation) {
		t.Helper()
		value = v
		w.tick(n, time.Now())
		n++
		var row ring.Row
		testkit.Equal(t, "there is a row", true, w.view.Ring.Latest(&row))
		testkit.Equal(t, fmt.Sprint(v), want, w.view.Why(0, row.Cells[0]))
		testkit.Equal(t, "reason of a cell that was never read", collector.ReasonNotDue, w.view.Why(1, row.Cells[1]).Reason)
	}
	f(denied, collector.Explanation{Reason: collector.ReasonPermission, Detail: "root only"})
	f(808e6, collector.Explanation{Reason: collector.ReasonImplausible, Detail: "the library says 8.08e+08, which is outside of 0 to 100 %"})
	f(math.Inf(1), collector.Explanation{Reason: collector.ReasonImplausible, Detail: "the library says +Inf, which is outside of 0 to 100 %"})
	f(math.NaN(), collector.Explanation{Reason: collector.ReasonBlank, Detail: "the library has no value now"})
}
