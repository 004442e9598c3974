package exposition

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// share returns a Share of a device's reading for a pod.
func share(device string, f field.ID, pod string) view.Share {
	return view.Share{Device: device, Field: f, Owner: view.Owner{PodLabels: labelsFrom("team", "x"), Labels: labelsFrom("pod", pod)}}
}

// shared is a GPU with two users: its temperature is split per user, its power is not, and one family has another scale.
func shared() (*feed, *testOwners) {
	fields := field.List{Fields: []field.Field{
		metric(descTemp, "A", field.Gauge, ""),
		{Desc: descTemp, Name: "A_KELVINISH", Type: field.Gauge, Scale: 0.01},
		{Desc: descTemp, Name: "A_HISTOGRAM", Type: field.Histogram, Scale: 1},
		metric(descPower, "B", field.Gauge, ""),
	}}
	f := viewtest.Simple(fields, []collector.Device{{ID: "g", Level: field.Global}}, []collector.Column{{Field: descTemp.ID}, {Field: descPower.ID}})
	f.Row[0], f.Row[1] = 70, 300
	f.Tick(time.Now())
	return f, &testOwners{
		by:    map[string][]view.Owner{"g": {ownerOf("pod", "x"), ownerOf("pod", "y")}},
		split: []field.ID{descTemp.ID},
		shares: &view.Shares{Set: 1, Series: []view.Share{share("g", descTemp.ID, "x"), share("g", descTemp.ID, "y"), share("g", descXID.ID, "x"), share("gone", descTemp.ID, "x")},
			Values: []float64{50, 20, 1, 2}},
	}
}

func TestShares(t *testing.T) {
	f, owners := shared()
	r := New(viewtest.Board(1, f), Options{Owners: owners})
	want := func(text string) {
		t.Helper()
		got := pageOf(t, r, Text)
		testkit.Equal(t, "", text, got)
		for _, format := range []Format{OpenMetrics, Protobuf} {
			testkit.Equal(t, fmt.Sprintf("values of %v, as those of text", format), parse(t, got, Text).Values, parse(t, pageOf(t, r, format), format).Values)
		}
	}
	const power = "# TYPE B gauge\n" + `B{pod="x"} 300` + "\n" + `B{pod="y"} 300` + "\n"
	want("# TYPE A gauge\nA 70\n" + `A{team="x",pod="x"} 50` + "\n" + `A{team="x",pod="y"} 20` + "\n" +
		"# TYPE A_KELVINISH gauge\nA_KELVINISH 0.7\n" + `A_KELVINISH{team="x",pod="x"} 0.5` + "\n" + `A_KELVINISH{team="x",pod="y"} 0.2` + "\n" + power)

	// Unknown values have no series, and a change of values needs no new layout.
	layout := r.layout
	owners.shares = &view.Shares{Set: 1, Series: owners.shares.Series, Values: []float64{math.NaN(), 21, 1, 2}}
	want("# TYPE A gauge\nA 70\n" + `A{team="x",pod="y"} 21` + "\n" + "# TYPE A_KELVINISH gauge\nA_KELVINISH 0.7\n" + `A_KELVINISH{team="x",pod="y"} 0.21` + "\n" + power)
	testkit.Equal(t, "other values made a new layout", false, r.layout != layout)
	// Other series are.
	owners.shares = &view.Shares{Set: 2, Series: owners.shares.Series[:1], Values: []float64{1}}
	want("# TYPE A gauge\nA 70\n" + `A{team="x",pod="x"} 1` + "\n" + "# TYPE A_KELVINISH gauge\nA_KELVINISH 0.7\n" + `A_KELVINISH{team="x",pod="x"} 0.01` + "\n" + power)
	testkit.Equal(t, "other series are shown by the old layout", false, r.layout == layout)
	// A user without labels would repeat the device's own series, in both families.
	owners.shares = &view.Shares{Set: 3, Series: []view.Share{{Device: "g", Field: descTemp.ID}}, Values: []float64{5}}
	want("# TYPE A gauge\nA 70\n# TYPE A_KELVINISH gauge\nA_KELVINISH 0.7\n" + power)
	testkit.Equal(t, "series left out as duplicates", 2, r.layout.stats.duplicates)
	owners.shares = nil
	want("# TYPE A gauge\nA 70\n# TYPE A_KELVINISH gauge\nA_KELVINISH 0.7\n" + power)
}

// TestSharesLeaveWithTheirDevice also covers a device with two sources, one stale.
func TestSharesLeaveWithTheirDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, owners := shared()
		second, _ := shared()
		first.Tick(time.Now())
		second.Tick(time.Now())
		r := New(viewtest.Board(1, first, second), Options{Owners: owners, StaleAfter: 5 * time.Second})
		count := func(want int) {
			t.Helper()
			testkit.Equal(t, "series of users", want, strings.Count(pageOf(t, r, Text), `A{team="x"`))
		}
		count(2)
		time.Sleep(3 * time.Second)
		second.Tick(time.Now())
		time.Sleep(3 * time.Second)
		count(2)
		time.Sleep(3 * time.Second)
		count(0)
		testkit.Equal(t, "series left out as duplicates", 0, r.layout.stats.duplicates)
	})
}

// TestHammerShares scrapes while Sets and values change: on each page each user has the values of one Set.
func TestHammerShares(t *testing.T) {
	f, _ := shared()
	owners := &changingShares{}
	owners.change(1)
	r := New(viewtest.Board(1, f), Options{Owners: owners})
	var readers sync.WaitGroup
	var ended atomic.Bool
	for range 4 {
		readers.Go(func() {
			for range 200 {
				values := parse(t, string(r.Page(Protobuf, false)), Protobuf).Values
				for series, v := range values {
					if !strings.HasPrefix(series, `{__name__="A"`) || !strings.Contains(series, "pod=") {
						continue
					}
					pods := int(v) % 10
					testkit.ErrorIf(t, !strings.Contains(series, strings.Repeat("p", pods)+`"`) || len(values) < 3, "%s is %v", series, v)
				}
			}
		})
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 1; !ended.Load(); n++ {
			owners.change(n)
		}
	})
	readers.Wait()
	ended.Store(true)
	writer.Wait()
}

// changingShares has s%5+1 users in Set s; the value of user i ends in its digit.
type changingShares struct{ p atomic.Pointer[view.Shares] }

func (c *changingShares) change(n int) {
	set := n / 3
	s := &view.Shares{Set: uint64(set + 1)}
	for i := 1; i <= set%5+1; i++ {
		s.Series = append(s.Series, view.Share{Device: "g", Field: descTemp.ID, Owner: ownerOf("pod", strings.Repeat("p", i))})
		s.Values = append(s.Values, float64(10*n+i))
	}
	c.p.Store(s)
}

func (c *changingShares) Version() uint64                            { return 1 }
func (c *changingShares) Owners(*collector.Device) []view.Owner      { return nil }
func (c *changingShares) Split(_ *collector.Device, f field.ID) bool { return f == descTemp.ID }
func (c *changingShares) Shares() *view.Shares                       { return c.p.Load() }
