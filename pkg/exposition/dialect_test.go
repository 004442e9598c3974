package exposition

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

// otherNames shows the first column of each device with Texts as other_energy, and a computed value.
type otherNames struct {
	prefix string
	value  float64
}

func (n *otherNames) Series(v *view.View, hostname string, owners func(*collector.Device) []view.Owner) (out []Series) {
	energy := &field.Field{Name: n.prefix + "other_energy", Type: field.Gauge, Help: "Energy.", Scale: 1000}
	count := &field.Field{Name: n.prefix + "other_count", Type: field.Gauge, Help: "Computed.", Scale: 1}
	for i, s := range v.Sources {
		for d := range s.Devices {
			if s.Fields.Dialect == nil || s.Fields.Dialect.Names != n || len(s.Devices[d].Texts) == 0 {
				continue
			}
			labels := append(labelsFrom("id", s.Devices[d].GPU, "host", hostname), labelsFrom("users", fmt.Sprint(len(owners(&s.Devices[d]))))...)
			out = append(out,
				Series{Field: energy, Labels: labels, Source: i, Device: d, Column: d},
				Series{Field: count, Labels: labelsFrom("id", s.Devices[d].GPU), Source: i, Device: d, Value: func() float64 { return n.value }, Always: true})
		}
	}
	return out
}

// withOther returns two GPUs; the first has the names of n.
func withOther(n *otherNames, inPlace bool) *feed {
	list := field.List{Fields: []field.Field{metric(descEnergy, "ENERGY", field.Counter, "Energy.")}}
	list.Dialect = &field.Dialect{InPlace: inPlace, Readings: []field.ID{descEnergy.ID}, Texts: []field.ID{descDriver.ID}, Names: n}
	f := viewtest.Simple(list, []collector.Device{gpu(0), gpu(1)}, []collector.Column{{Device: 0, Field: descEnergy.ID}, {Device: 1, Field: descEnergy.ID}})
	f.Devices[0].Texts = labelsFrom("DRIVER", "570.1")
	copy(f.Row, []float64{5, 7})
	return f
}

// linesOf returns the samples of a page, without irrelevant GPU labels.
func linesOf(page string) string {
	var out []string
	for line := range strings.Lines(page) {
		if line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(strings.TrimSpace(line), "{")
		if name == "ENERGY" {
			gpu, _, _ := strings.Cut(rest, ",")
			rest = gpu + "}" + line[strings.LastIndexByte(line, ' '):len(line)-1]
		}
		out = append(out, name+"{"+rest)
	}
	return strings.Join(out, "\n")
}

// TestDialect: a dialect's series show the cells of their columns, and values computed for each page, next to or
// instead of the list's names.
func TestDialect(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		n := &otherNames{value: 1}
		f := withOther(n, inPlace)
		f.Tick(time.Now())
		owners := &testOwners{by: map[string][]view.Owner{f.Devices[0].ID: {{}, {}}}}
		r := New(viewtest.Board(1, f), Options{Hostname: "n1", HostnameLabel: "Hostname", Owners: owners})
		own := `ENERGY{gpu="0"} 5` + "\n"
		if inPlace {
			own = ""
		}
		want := own + `ENERGY{gpu="1"} 7
other_count{id="0"} %v
other_energy{id="0",host="n1",users="2"} %v`
		testkit.Equal(t, fmt.Sprintf("in place %v", inPlace), fmt.Sprintf(want, 1, 5000), linesOf(pageOf(t, r, Text)))
		built := r.layout
		n.value, f.Row[0] = 2, 6
		f.Tick(time.Now())
		want = strings.Replace(want, "} 5", "} 6", 1)
		testkit.Equal(t, fmt.Sprintf("in place %v, newer row", inPlace), fmt.Sprintf(want, 2, 6000), linesOf(pageOf(t, r, Text)))
		testkit.Equal(t, "the layout is the same", true, r.layout == built)
		n.value = math.NaN()
		f.Tick(time.Now())
		testkit.Lacks(t, "a computed value that is not known", linesOf(pageOf(t, r, Text)), "other_count")
		got := r.layout.stats
		testkit.Equal(t, "series left out", 0, got.duplicates+got.misfits+got.labels)
	}
}

// TestDialectLimits: of a stale device only series marked as permanent stay, and a field of the list keeps its name.
func TestDialectLimits(t *testing.T) {
	now := time.Now()
	f := withOther(&otherNames{value: 1}, true)
	f.Tick(now)
	r := New(viewtest.Board(1, f), Options{Now: func() time.Time { return now }})
	now = now.Add(time.Hour)
	testkit.Equal(t, "page", `other_count{id="0"} 1`, linesOf(pageOf(t, r, Text)))
	f = withOther(&otherNames{value: 1}, false)
	f.Devices[0].Unshown = true
	f.Tick(now)
	r = New(viewtest.Board(1, f), Options{Now: func() time.Time { return now }})
	testkit.Equal(t, "a page without the first GPU", `ENERGY{gpu="1"} 7`, linesOf(pageOf(t, r, Text)))
	f = withOther(&otherNames{}, false)
	f.Fields.Fields[0].Name = "other_energy"
	f.Tick(time.Now())
	r = New(viewtest.Board(1, f), Options{})
	testkit.Lacks(t, "page", pageOf(t, r, Text), "users=")
	testkit.Equal(t, "misfits", 1, r.layout.stats.misfits)
}
