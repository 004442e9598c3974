package accounts

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"warpgauge/extensions/accounts/report"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// columns of a board, and of an instance.
var (
	ofBoard    = []field.ID{field.TotalEnergy, field.PowerUsage, field.GPUUtilization, memoryUsed, memoryTotal, field.TensorActive, field.SMClock, field.ClockEventReasons}
	ofInstance = []field.ID{field.EngineActive, memoryUsed}
)

// node is a node with boards whose readings and owners a test sets.
type node struct {
	board  *view.Board
	rows   *rows.Reader
	ledger *Ledger
	now    time.Time
	every  time.Duration
	source *view.Source
	cells  []float64

	id      uint64
	changed time.Time
	unknown bool
	users   map[string][]owner.Owner

	processes map[string]owner.DeviceUse
	scrapes   uint64
}

func (n *node) Change() (id uint64, at time.Time, complete bool) { return n.id, n.changed, !n.unknown }

func (n *node) Users(d *collector.Device) []owner.Owner { return n.users[d.ID] }

func (n *node) Pod(uid string) string { return map[string]string{"u": "n/p"}[uid] }

func (n *node) Snapshot() *owner.Usage { return &owner.Usage{Devices: n.processes} }

// restart replaces the ledger by one that reads what the last one has saved.
func (n *node) restart(t *testing.T) {
	t.Helper()
	text := testkit.Get(json.Marshal(n.ledger.save()))(t)
	n.source.Ring = ring.Make(1024, len(n.source.Devices), len(n.source.Columns))
	n.board = new(view.Board)
	n.board.Store(&view.View{Sources: []*view.Source{n.source}})
	n.rows, n.ledger = rows.New(n.board, nil), New(n.ledger.o)
	testkit.Must(t, n.ledger.restore(text, n.now))
	n.rows.Follow(n.ledger)
}

// newNode returns a node with so many boards, of which the first has instances of these profiles.
func newNode(boards int, every time.Duration, profiles ...string) *node {
	n := &node{board: new(view.Board), now: start, every: every, users: map[string][]owner.Owner{}}
	n.rows, n.ledger = rows.New(n.board, nil), New(Options{Owners: n, Processes: n, IdleAfter: time.Minute, Node: "node1", Scrapes: func() uint64 { return n.scrapes }})
	n.rows.Follow(n.ledger)
	n.layout(boards, profiles...)
	return n
}

// layout makes a new View.
func (n *node) layout(boards int, profiles ...string) {
	s := &view.Source{Collector: "test", Interval: n.every}
	add := func(d collector.Device, fields []field.ID) {
		for _, id := range fields {
			s.Columns = append(s.Columns, collector.Column{Device: len(s.Devices), Field: id})
		}
		s.Devices = append(s.Devices, d)
	}
	for i := range boards {
		id := fmt.Sprint("GPU-", i)
		add(collector.Device{ID: id, GPU: fmt.Sprint(i), UUID: id, Model: "NVIDIA H100 80GB HBM3", Level: field.GPU}, ofBoard)
	}
	for i, p := range profiles {
		add(collector.Device{ID: fmt.Sprint("GPU-0/", i+1), Parent: "GPU-0", Model: "NVIDIA H100 80GB HBM3", Level: field.Instance, Instance: collector.Instance{ID: fmt.Sprint(i + 1), Profile: p}}, ofInstance)
	}
	s.Ring = ring.Make(1024, len(s.Devices), len(s.Columns))
	n.source, n.cells = s, make([]float64, len(s.Columns))
	n.board.Store(&view.View{Sources: []*view.Source{s}})
}

// cell returns a reading of a device.
func (n *node) cell(device string, id field.ID) *float64 {
	for i, c := range n.source.Columns {
		if n.source.Devices[c.Device].ID == device && c.Field == id {
			return &n.cells[i]
		}
	}
	panic(device)
}

// use gives a device to owners, at a time since the last row.
func (n *node) use(after time.Duration, device string, users ...owner.Owner) {
	n.users[device] = users
	n.id, n.changed = n.id+1, n.now.Add(after)
}

// tick writes a row.
func (n *node) tick() {
	n.now = n.now.Add(n.every)
	stamps := make([]int64, len(n.source.Devices))
	for i := range stamps {
		stamps[i] = n.now.UnixNano()
	}
	n.source.Ring.Append(n.now.UnixNano(), stamps, n.cells)
	n.rows.Sync(n.now)
}

// finish counts everything.
func (n *node) finish() {
	n.ledger.mu.Lock()
	defer n.ledger.mu.Unlock()
	for _, b := range n.ledger.boards {
		b.commit(math.MaxInt64)
	}
}

// of returns the account of an owner of a board.
func (n *node) of(o report.Owner, board string) *account { return n.ledger.account(o, board) }

func job(name string) owner.Owner     { return owner.Owner{Job: name} }
func ofJob(name string) report.Owner  { return report.Owner{Kind: report.KindJob, Job: name} }
func joules(a *account) float64       { return float64(micros(a)) / 1e6 }
func near(got, want, by float64) bool { return math.Abs(got-want) <= by*math.Abs(want) }

// micros returns all energy of an account, µJ.
func micros(a *account) (sum int64) {
	for _, of := range a.energy {
		for _, by := range of {
			for _, e := range by {
				sum += e
			}
		}
	}
	return sum
}

// TestTruth: the energy of owners of ten seconds is known within 1 %, of ten minutes within 0.1 %, while the power changes from row to row,
// and owners change between two rows and are known up to 1.4 s later.
func TestTruth(t *testing.T) {
	truth(t, 12, 10*time.Second, 0.01)
	truth(t, 3, 10*time.Minute, 0.001)
}

func truth(t *testing.T, owners int, lasts time.Duration, within float64) {
	t.Helper()
	n := newNode(1, 100*time.Millisecond)
	r := rand.New(rand.NewPCG(1, 2))
	began, noticed, want := make([]time.Time, owners+1), make([]time.Time, owners+1), make([]float64, owners)
	for k := range began {
		began[k] = start.Add(time.Duration(k)*lasts + time.Second + time.Duration(r.IntN(100))*time.Millisecond)
		noticed[k] = began[k].Add(time.Duration(r.IntN(1400)) * time.Millisecond)
	}
	*n.cell("GPU-0", field.GPUUtilization) = 100
	next := 0
	for n.now.Before(noticed[owners].Add(2 * time.Second)) {
		watts := 100 + 600*r.Float64()
		*n.cell("GPU-0", field.PowerUsage) = watts
		*n.cell("GPU-0", field.TotalEnergy) += watts * 100
		for k := range want { // the part of the row that is the owner's
			from, until := max(n.now.UnixNano(), began[k].UnixNano()), min(n.now.Add(n.every).UnixNano(), began[k+1].UnixNano())
			want[k] += watts * max(0, float64(until-from)/second)
		}
		for next <= owners && !noticed[next].After(n.now) {
			n.use(began[next].Sub(n.now), "GPU-0", job(fmt.Sprint(next)))
			next++
		}
		n.tick()
	}
	n.finish()
	for k, w := range want {
		a, seconds := n.of(ofJob(fmt.Sprint(k)), "GPU-0"), began[k+1].Sub(began[k]).Seconds()
		if got := joules(a); !near(got, w, within) || !near(a.held(), seconds, 1e-6) || !near(a.busy.Sum(), seconds, 1e-6) {
			t.Errorf("job %d: %.1f J in %.2f s, busy %.2f, want %.1f J in %.2f s", k, got, a.held(), a.busy.Sum(), w, seconds)
		}
	}
}

// TestConservation: whatever happens, the accounts of a board have all that its counter has counted.
func TestConservation(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := newNode(2, time.Second)
		counted, began := map[string]float64{}, map[string]float64{}
		ids, profiles := []string{"GPU-0", "GPU-1"}, []string(nil)
		view := func(of []string) {
			now := []float64{*n.cell(ids[0], field.TotalEnergy), *n.cell(ids[1], field.TotalEnergy)}
			profiles = of
			n.layout(2, of...)
			*n.cell(ids[0], field.TotalEnergy), *n.cell(ids[1], field.TotalEnergy) = now[0], now[1]
		}
		n.tick()
		for range 400 {
			for _, id := range ids {
				e := n.cell(id, field.TotalEnergy)
				*e += float64(r.IntN(700_000))
				if r.IntN(150) == 0 { // its driver was loaded again
					n.unknown, n.id = false, n.id+1 // else two restarts of the exporter within 30 s may lose what was not counted before
					n.tick()
					counted[id] += *e - began[id]
					began[id], *e = 0, float64(r.IntN(1000))
					for range 12 {
						n.tick()
					}
				}
			}
			switch r.IntN(9) {
			case 0:
				n.use(-time.Duration(r.IntN(1500))*time.Millisecond, "GPU-1", job(fmt.Sprint(r.IntN(5))))
			case 1:
				n.use(0, "GPU-1", job("a"), job("b"), job("c"))
			case 2:
				n.use(0, "GPU-1")
			case 3:
				n.use(0, fmt.Sprint("GPU-0/", 1+r.IntN(2)), job(fmt.Sprint(r.IntN(5))))
			case 4:
				view([]string{"3g.40gb", "2g.20gb", "1g.10gb"}[:r.IntN(4)])
			case 5:
				n.now = n.now.Add(time.Duration(r.IntN(60)) * time.Second) // no rows
			case 6:
				n.unknown = !n.unknown
				n.id++
			case 7:
				switch r.IntN(4) {
				case 0:
					n.restart(t)
				case 1: // the clock is set
					n.now = n.now.Add(time.Duration(r.IntN(7200)-3600) * time.Second)
				}
			case 8: // another library takes over, whose first values are up to a second older
				view(profiles)
				n.source.Collector = fmt.Sprint("library ", r.IntN(2))
				for range 1 + r.IntN(9) {
					e, older := n.cell(ids[r.IntN(2)], field.TotalEnergy), float64(r.IntN(700_000))
					*e -= older
					n.tick()
					*e += older
				}
			}
			for i, c := range n.source.Columns {
				if c.Field == field.EngineActive || c.Field == field.GPUUtilization {
					n.cells[i] = []float64{0, 0.5, math.NaN(), 1}[r.IntN(4)]
				}
			}
			n.tick()
		}
		n.unknown = false
		n.id++
		for range 45 {
			n.tick()
		}
		n.finish()
		for _, id := range ids {
			b, sum := n.ledger.boards[id], int64(0)
			for k, a := range n.ledger.accounts {
				if k.board == id {
					sum += micros(a)
				}
			}
			testkit.Equal(t, fmt.Sprintf("seed %d, %s: accounts", seed, id), b.total, sum)
			if want := micro(counted[id] + *n.cell(id, field.TotalEnergy) - began[id]); want != b.total {
				t.Errorf("seed %d, %s: %d µJ of %d are counted", seed, id, b.total, want)
			}
		}
	}
}

// TestParts: MIG instances have their part by activity, or by size if nothing runs; several owners equal parts or by use.
func TestParts(t *testing.T) {
	n := newNode(2, time.Second, "3g.40gb", "2g.20gb")
	n.use(0, "GPU-0/1", job("three"))
	n.use(0, "GPU-0/2", job("two"))
	n.use(0, "GPU-1", job("a"), job("b"))
	n.tick()
	run := func(seconds int, one, two float64) {
		*n.cell("GPU-0/1", field.EngineActive), *n.cell("GPU-0/2", field.EngineActive) = one, two
		for range seconds {
			*n.cell("GPU-0", field.TotalEnergy) += 70_000
			*n.cell("GPU-1", field.TotalEnergy) += 100_000
			n.tick()
		}
		n.finish()
	}
	*n.cell("GPU-0/1", memoryUsed), *n.cell("GPU-1", memoryUsed), *n.cell("GPU-1", field.GPUUtilization) = 1000, 4000, 50
	run(10, 0, 0)
	for o, want := range map[report.Owner]float64{ofJob("three"): 300, ofJob("two"): 200, vacant: 200} {
		a := n.of(o, "GPU-0")
		if got := float64(a.energy[fromCounter][methodSlices][stateIdle]) / 1e6; !near(got, want, 1e-6) || a.busy.Sum() != 0 {
			t.Errorf("%v: %v J by slices, busy %v, want %v J", o, got, a.busy.Sum(), want)
		}
	}
	run(10, 0.5, 0.75)
	for o, want := range map[report.Owner]float64{ofJob("three"): 350, ofJob("two"): 350, vacant: 0} {
		if got := float64(n.of(o, "GPU-0").energy[fromCounter][methodActivity][stateBusy]) / 1e6; !near(got, want, 1e-6) {
			t.Errorf("%v: %v J by activity, want %v", o, got, want)
		}
	}
	three := n.of(ofJob("three"), "GPU-0")
	if !near(three.busy.Sum(), 10*0.5*3/7, 1e-6) || !near(three.memory, 20*1000*(1<<20), 1e-6) || three.peak != 1000*(1<<20) {
		t.Errorf("busy %v s, memory %v, at most %v", three.busy.Sum(), three.memory, three.peak)
	}
	shared := n.of(ofJob("a"), "GPU-1")
	if got := float64(shared.energy[fromCounter][methodEqual][stateBusy]) / 1e6; !near(got, 1000, 1e-6) || !near(shared.busy.Sum(), 5, 1e-6) {
		t.Errorf("an owner of two has %v J, busy %v s, want half of 2,000 and of 10", got, shared.busy.Sum())
	}
	shared.use, n.of(ofJob("b"), "GPU-1").use = usage{2, 0.3, 1}, usage{1, 0.1, 2}
	run(10, 0, 0)
	if got := float64(shared.energy[fromCounter][methodActivity][stateBusy]) / 1e6; !near(got, 750, 1e-6) {
		t.Errorf("with three quarters of the activity it has %v J of 1,000", got)
	}
}

// TestBias: OFU is the mean of products, not the product of means: clocks fall when tensor work rises.
func TestBias(t *testing.T) {
	n := newNode(1, time.Second)
	n.use(0, "GPU-0", job("a"))
	n.tick()
	for i := range 100 {
		*n.cell("GPU-0", field.TensorActive), *n.cell("GPU-0", field.SMClock) = 0, 1830
		if i%2 == 0 {
			*n.cell("GPU-0", field.TensorActive), *n.cell("GPU-0", field.SMClock) = 0.8, 1098
		}
		*n.cell("GPU-0", field.ClockEventReasons) = 4
		n.tick()
	}
	n.finish()
	a := n.of(ofJob("a"), "GPU-0")
	if ofu, product := a.ofu.Sum()/a.ofu.Seconds(), a.tensor.Sum()/a.tensor.Seconds()*0.8; !near(ofu, 0.24, 0.02) || !near(product, 0.32, 0.02) {
		t.Errorf("OFU %v, by means %v, want 0.24 and 0.32", ofu, product)
	}
	if !near(a.throttled[2], 100, 0.02) || !near(a.held(), 100, 0.02) {
		t.Errorf("%v s under the power limit of %v", a.throttled[2], a.held())
	}
}

// TestCounters: a counter that is lower for a moment continues, one that has stopped is replaced by power, and XIDs count.
func TestCounters(t *testing.T) {
	n := newNode(1, time.Second)
	n.use(0, "GPU-0", job("a"))
	e := n.cell("GPU-0", field.TotalEnergy)
	*e, *n.cell("GPU-0", field.PowerUsage) = 1e6, 100
	for range 20 {
		*e += 100_000
		n.tick()
	}
	*e -= 50_000 // of another library, which is behind
	n.tick()
	for range 10 {
		*e += 100_000
		n.tick()
	}
	n.finish()
	a := n.of(ofJob("a"), "GPU-0")
	testkit.Equal(t, "J by the counter", *e/1e3-1100, joules(a))
	for range 120 {
		n.tick()
	}
	n.finish()
	if got := float64(a.energy[fromPower][methodWhole][stateIdle]) / 1e6; got < 5500 || got > 6100 {
		t.Errorf("%v J by power in the minute after a minute without counting, want about 6,000", got)
	}
}

// TestPage: an owner that has left stays on the page for ten minutes and two scrapes, its report for a day, and a bounded number of
// them.
func TestPage(t *testing.T) {
	n := newNode(1, time.Second)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(n.ledger)
	*n.cell("GPU-0", field.TensorActive) = 0.5
	series := func(after time.Duration) int {
		t.Helper()
		n.ledger.publish(n.now.Add(after))
		return testkit.Get(testutil.GatherAndCount(reg, "warpgauge_owner_gpu_seconds_total"))(t)
	}
	n.tick()
	for _, o := range []string{"a", "b", ""} {
		n.use(0, "GPU-0", owner.Owner{Namespace: "n", Pod: "p" + o, Container: "c", PodUID: "u"})
		n.tick()
		n.tick()
	}
	testkit.Equal(t, "owners on the page", 3, series(2*time.Second)) // without the two kinds that had no time
	testkit.Equal(t, "owners after an hour, before the page was made twice", 3, series(time.Hour))
	testkit.Equal(t, "owners after that", 3, series(time.Hour))
	n.scrapes++
	testkit.Equal(t, "owners after an hour with one scrape", 3, series(time.Hour))
	n.scrapes++
	testkit.Equal(t, "owners after two scrapes and nine minutes", 3, series(9*time.Minute))
	testkit.Equal(t, "owners after two scrapes and eleven minutes", 1, series(11*time.Minute))
	testkit.Equal(t, "reports", 5, len(reports(n.ledger, "")))
	testkit.Equal(t, "pods of a name", 1, len(reports(n.ledger, "pod:n:p")))
	testkit.Equal(t, "pods of a part of a name", 0, len(reports(n.ledger, "pod:n")))
	n.ledger.retire(n.now.Add(25 * time.Hour)) // the owners of the board have not changed, and it is there
	testkit.Equal(t, "reports after a day", 3, len(reports(n.ledger, "")))
	for i := range 2 * maxEnded {
		n.use(0, "GPU-0", job(fmt.Sprint(i)))
		n.now = n.now.Add(50 * time.Millisecond)
		n.tick()
	}
	n.ledger.retire(n.now)
	testkit.AtMost(t, "accounts", maxEnded+3, len(n.ledger.accounts))
	testkit.Equal(t, "owners dropped", uint64(maxEnded), n.ledger.dropped)
}

// TestLeft: a report says that an owner has left once its last row is counted.
func TestLeft(t *testing.T) {
	n := newNode(1, time.Second)
	n.use(0, "GPU-0", job("a"))
	n.tick()
	n.tick()
	n.use(0, "GPU-0")
	n.tick()
	a := n.of(ofJob("a"), "GPU-0")
	testkit.Equal(t, "left", [2]bool{true, false}, [2]bool{a.left > 0, boardOfReport(&copied{*a, a.board.device, a.board.until}, "").Left != nil})
	n.finish()
	testkit.Equal(t, "left when all is counted", true, boardOfReport(&copied{*a, a.board.device, a.board.until}, "").Left != nil)
}

// TestAllocations: a row allocates nothing.
func TestAllocations(t *testing.T) {
	n := newNode(2, 10*time.Millisecond, "3g.40gb")
	n.use(0, "GPU-0/1", job("a"))
	n.use(0, "GPU-1", job("a"), job("b"))
	var row rows.Row
	for range 300 {
		n.tick()
	}
	row.Source, row.Devices, row.Row.Stamps, row.Row.Cells = 0, []rows.Device{{Sampled: true, Millis: 10}, {Sampled: true, Millis: 10}, {Sampled: true, Millis: 10}}, make([]int64, 3), n.cells
	row.Read = n.now
	testkit.Equal(t, "allocations", 0.0, testing.AllocsPerRun(500, func() {
		for i := range row.Stamps {
			row.Stamps[i] += int64(10 * time.Millisecond)
		}
		row.Read = row.Read.Add(10 * time.Millisecond)
		*n.cell("GPU-0", field.TotalEnergy) += 1000
		n.ledger.Row(&row)
	}))
}

// TestRestart: a job that still runs has had its board meanwhile, one that has ended left when its file says so, and no series goes
// back.
func TestRestart(t *testing.T) {
	n := newNode(2, time.Second)
	n.use(0, "GPU-0", job("stays"))
	n.use(0, "GPU-1", job("ends"))
	work := func(seconds int) {
		for range seconds {
			*n.cell("GPU-0", field.TotalEnergy) += 1000
			*n.cell("GPU-1", field.TotalEnergy) += 1000
			n.tick()
		}
	}
	work(20)
	series := func() map[string]float64 {
		out := map[string]float64{}
		n.ledger.publish(n.now)
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(n.ledger)
		for _, f := range testkit.Get(reg.Gather())(t) {
			for _, m := range f.GetMetric() {
				if m.GetCounter() != nil {
					out[f.GetName()+fmt.Sprint(m.GetLabel())] = m.GetCounter().GetValue()
				}
			}
		}
		return out
	}
	shown := series()
	*n.cell("GPU-0", field.TotalEnergy) += 60_000
	*n.cell("GPU-1", field.TotalEnergy) += 60_000
	n.now = n.now.Add(time.Minute)
	n.users["GPU-1"], n.id, n.changed = nil, n.id+1, n.now.Add(-30*time.Second) // its file was removed then
	n.restart(t)
	work(20)
	for name, v := range series() {
		testkit.ErrorIf(t, v < shown[name], "%s: %v after %v", name, v, shown[name])
		delete(shown, name)
	}
	testkit.Equal(t, "series that went", map[string]float64{}, shown)
	n.finish()
	stays, ends := n.of(ofJob("stays"), "GPU-0"), n.of(ofJob("ends"), "GPU-1")
	if got := joules(stays); got < 97 || got > 99 || stays.left != 0 || stays.held() < 98 {
		t.Errorf("the job that stays has %v J in %v s, left %d", got, stays.held(), stays.left)
	}
	if got := joules(ends); got < 48 || got > 50 || ends.left != n.changed.UnixNano() || ends.held() > 50 {
		t.Errorf("the job that has ended has %v J in %v s, left %d", got, ends.held(), ends.left)
	}
	testkit.AtMost(t, "unused of the job that stays", 101*time.Second, stays.unused())
	testkit.Between(t, "J without owner", 49, 51, joules(n.of(vacant, "GPU-1"))+joules(n.of(unattributed, "GPU-1")))
}

// TestLateUID: a pod has one account, although its uid comes later than the pod and is unknown again after a restart. Another pod of the
// same name has another one.
func TestLateUID(t *testing.T) {
	n := newNode(1, time.Second)
	for i, uid := range []string{"", "u1", "restart", "", "u1", "u2"} {
		if uid == "restart" {
			n.restart(t)
			continue
		}
		n.use(0, "GPU-0", owner.Owner{Namespace: "n", Pod: "p", PodUID: uid, Container: "c"})
		for range 4 {
			*n.cell("GPU-0", field.TotalEnergy) += 1000 * float64(i+1)
			n.tick()
		}
	}
	n.finish()
	var got []string
	for k, a := range n.ledger.accounts {
		if k.Kind == report.KindPod {
			got = append(got, fmt.Sprintf("%s %.0f J", k.ID(), joules(a)))
		}
	}
	slices.Sort(got)
	testkit.Equal(t, "accounts", []string{"pod:n:p:u1 47 J", "pod:n:p:u2 24 J"}, got)
}

// TestFile: a file that cannot be read is kept under another name, and one that cannot be written costs nothing else.
func TestFile(t *testing.T) {
	n := newNode(1, time.Second)
	n.ledger.o.Store = NewStore(filepath.Join(t.TempDir(), "accounts"))
	n.use(0, "GPU-0", job("a"))
	for range 10 {
		n.tick()
	}
	n.ledger.publish(n.now)
	read := func() *Ledger {
		t.Helper()
		l := New(n.ledger.o)
		l.Restore(n.now)
		return l
	}
	testkit.Equal(t, "accounts in the file", len(n.ledger.accounts), len(read().accounts))
	path := filepath.Join(n.ledger.o.Store.Path, fileName)
	for _, bad := range []string{"{", `{"version":2}`, `{"version":1,"accounts":[{"board":"x"}]}`,
		`{"version":1,"boards":[{"device":{"ID":"GPU-0"}}],"accounts":[{"board":"GPU-0","busy":{"first":9223372036854775807,"weights":[1]}}]}`,
		`{"version":1,"boards":[{"device":{"ID":"GPU-0"}}],"accounts":[{"board":"GPU-0","busy":{"weights":[-1]}}]}`,
		`{"version":1,"boards":[{"device":{"ID":"GPU-0"}}],"accounts":[{"board":"GPU-0","energy":[[[-1]]]}]}`,
		`{"version":1,"boards":[{"device":{"ID":"GPU-0"},"counter":{"last":1e300}}]}`, "null"} {
		testkit.Must(t, os.WriteFile(path, []byte(bad), 0o600))
		testkit.Equal(t, "accounts of "+bad, 0, len(read().accounts))
	}
	testkit.Equal(t, "the copy", `null`, string(testkit.Get(os.ReadFile(filepath.Join(n.ledger.o.Store.Path, fileFormer)))(t)))
	testkit.Must(t, os.RemoveAll(n.ledger.o.Store.Path))
	testkit.Must(t, os.WriteFile(n.ledger.o.Store.Path, nil, 0o600))
	n.ledger.publish(n.now)
	testkit.Equal(t, "failed", true, n.ledger.failed)
	testkit.Equal(t, "reports", 2, len(reports(n.ledger, "")))
}

// TestMeter: a counter that jumps for a moment adds nothing, one that stops and continues is not counted twice, and one that is not read
// is replaced by power.
func TestMeter(t *testing.T) {
	n := newNode(1, time.Second)
	n.use(0, "GPU-0", job("a"))
	e, power := n.cell("GPU-0", field.TotalEnergy), n.cell("GPU-0", field.PowerUsage)
	*power = 100
	run := func(seconds int, joules float64) {
		for range seconds {
			*e += joules * 1000
			n.tick()
		}
	}
	run(10, 100)
	at := *e
	*e = 9e14
	n.tick()
	*e = at
	run(10, 100)
	n.finish()
	testkit.Between(t, "J after a jump", 1800, 2000, joules(n.of(ofJob("a"), "GPU-0")))
	run(200, 0)
	run(1, 20_000) // what it used meanwhile
	n.finish()
	testkit.Between(t, "J after a stop", 21_800, 22_000, joules(n.of(ofJob("a"), "GPU-0")))
	*e = math.NaN()
	run(3600, 0)
	n.finish()
	testkit.Between(t, "J without a counter", 21_800+350_000, 22_000+360_000, joules(n.of(ofJob("a"), "GPU-0")))
}

// TestWhole: the job of a board has the MIG instances that no other has; an owner that returns is not unused since it left, and one of a
// board that is not there after a restart has left.
func TestWhole(t *testing.T) {
	n := newNode(2, time.Second, "3g.40gb")
	n.use(0, "GPU-0", job("a"))
	n.use(0, "GPU-1", job("b"))
	for range 20 {
		n.tick()
	}
	n.finish()
	testkit.Between(t, "seconds of the whole board", 18, 20, n.of(ofJob("a"), "GPU-0").held())
	n.use(0, "GPU-1")
	for range 300 {
		n.tick()
	}
	n.use(0, "GPU-1", job("b"))
	n.tick()
	n.tick()
	n.finish()
	testkit.AtMost(t, "unused", 3*time.Second, n.of(ofJob("b"), "GPU-1").unused())
	n.layout(1)
	n.restart(t)
	for range 40 {
		n.tick()
	}
	testkit.Equal(t, "left", true, n.of(ofJob("b"), "GPU-1").left > 0)
	n.ledger.retire(n.now.Add(25 * time.Hour))
	testkit.Equal(t, "boards after a day", 1, len(n.ledger.boards))
}

// FuzzFile: whatever stands in the file, the ledger starts, counts and writes it again.
func FuzzFile(f *testing.F) {
	n := newNode(1, time.Second)
	n.use(0, "GPU-0", job("a"))
	for range 10 {
		n.tick()
	}
	f.Add(testkit.Get(json.Marshal(n.ledger.save()))(f))
	f.Fuzz(func(t *testing.T, text []byte) {
		n := newNode(2, time.Second)
		_ = n.ledger.restore(text, n.now) // it may be refused
		for range 5 {
			n.tick()
		}
		n.ledger.publish(n.now)
		testkit.Get(json.Marshal(n.ledger.save()))(t)
		testkit.Get(json.Marshal(reports(n.ledger, "")))(t)
	})
}

// TestIdle: an owner that does not use its GPU is told once, and a GPU without a process apart from one whose processes do nothing.
func TestIdle(t *testing.T) {
	n := newNode(3, time.Second)
	n.use(0, "GPU-0", owner.Owner{Namespace: "n", Pod: "p", PodUID: "u"})
	n.use(0, "GPU-1", job("a"))
	n.use(0, "GPU-2", job("b"))
	n.processes = map[string]owner.DeviceUse{
		"GPU-0": {Complete: true},
		"GPU-1": {Complete: true, Processes: []owner.Process{{Job: "a"}}},
	}
	*n.cell("GPU-2", field.GPUUtilization) = math.NaN()
	var told []string
	run := func(seconds int) {
		for range seconds {
			n.tick()
			for _, e := range check(n.ledger, n.now) {
				told = append(told, e.Device.ID+" "+e.Text)
			}
		}
	}
	run(120)
	slices.Sort(told)
	testkit.Equal(t, "events", []string{
		"GPU-0 pod n/p has not used its GPU for 1m0s: it has no process on it",
		"GPU-1 job a has not used its GPU for 1m0s: its processes do nothing",
	}, told)
	n.ledger.publish(n.now)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(n.ledger)
	testkit.Equal(t, "idle series", 2, testkit.Get(testutil.GatherAndCount(reg, "warpgauge_owner_idle"))(t))
	told = nil
	for range 100 { // blips
		*n.cell("GPU-0", field.GPUUtilization) = 4
		run(1)
		*n.cell("GPU-0", field.GPUUtilization) = 0
		run(9)
	}
	testkit.Equal(t, "events of blips", 0, len(told))
	*n.cell("GPU-1", field.GPUUtilization) = 3 // all the time
	run(600)
	testkit.Equal(t, "events", []string{"GPU-1 job a uses its GPU again"}, told)
	told = nil
	*n.cell("GPU-0", field.GPUUtilization) = 50
	run(5)
	testkit.Equal(t, "events", []string{"GPU-0 pod n/p uses its GPU again"}, told)
}

func TestAPI(t *testing.T) {
	n := newNode(1, time.Second)
	n.use(0, "GPU-0", owner.Owner{Namespace: "n", Pod: "p", PodUID: "u", Container: "a"}, owner.Owner{Namespace: "n", Pod: "p", PodUID: "u", Container: "b"})
	*n.cell("GPU-0", memoryTotal) = 80_000
	n.tick()
	device := n.source.Devices[0]
	noteVerdict(n.ledger, events.Event{Device: &device, Time: n.now, Text: "XID 48", Bad: true})
	for range 10 {
		*n.cell("GPU-0", field.TotalEnergy) += 1000
		n.tick()
	}
	api := NewAPI(n.ledger)
	ask := func(method, path string, header ...string) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for path, want := range map[string]int{"GET": 200, "GET/pod:n:p:u": 200, "GET/job:7": 404, "GET/pod:n:p:u/x": 404, "POST": 405} {
		method, id, _ := strings.Cut(path, "/")
		code, body := ask(method, strings.TrimSuffix(Prefix+"/"+id, "/"))
		testkit.Equal(t, path+": "+body, want, code)
	}
	code, _ := ask("GET", Prefix, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors")
	testkit.Equal(t, "of another site", 403, code)
	_, body := ask("GET", Prefix+"/pod:n:p:u")
	var r report.Report
	testkit.Must(t, json.Unmarshal([]byte(body), &r))
	if r.GPUs != 1 || len(r.Boards) != 2 || !near(r.Total.Energy, 10, 0.15) || r.Total.MemorySize == nil || len(r.Boards[0].Verdicts) != 1 {
		t.Errorf("the report is %s", body)
	}
	testkit.Has(t, "the judgement", r.Judgement, "XID 48")
	api.making = nil // as if it were full
	code, _ = ask("GET", Prefix)
	testkit.Equal(t, "one too many", 503, code)
}

// TestWeek: a thousand owners a day for a week leave a bounded number of accounts, and a page of those that were not scraped long ago.
func TestWeek(t *testing.T) {
	n := newNode(1, time.Second)
	for i := range 7 * 1000 {
		n.use(0, "GPU-0", job(fmt.Sprint(i)))
		n.now = n.now.Add(86 * time.Second)
		n.tick()
		if n.scrapes += 5; i%20 == 0 {
			n.ledger.publish(n.now)
			n.ledger.gathers.Add(2)
			testkit.AtMost(t, "accounts", maxEnded+20+3, len(n.ledger.accounts))
			testkit.AtMost(t, "series", 60*20, len(*n.ledger.page.Load()))
		}
	}
	testkit.Equal(t, "owners dropped", uint64(0), n.ledger.dropped)
}

// busyNode is 8 boards, each with 20 owners.
func busyNode() *node {
	n := newNode(8, 100*time.Millisecond)
	for i := range 8 {
		var users []owner.Owner
		for j := range 20 {
			users = append(users, job(fmt.Sprint(i, j)))
		}
		n.use(0, fmt.Sprint("GPU-", i), users...)
	}
	for range 300 {
		n.tick()
	}
	return n
}

// BenchmarkRow counts a row of 8 boards with 20 owners each. At 100 ms ticks, 1 % of a core is a millisecond a row.
func BenchmarkRow(b *testing.B) {
	n := busyNode()
	var energy []*float64
	for i := range 8 {
		energy = append(energy, n.cell(fmt.Sprint("GPU-", i), field.TotalEnergy))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, e := range energy {
			*e += 70_000
		}
		n.tick()
	}
}

// BenchmarkPublish makes the page and the file's content of 8 boards with 20 owners each. 1 % of a core is 100 ms.
func BenchmarkPublish(b *testing.B) {
	n := busyNode()
	n.ledger.o.Store = NewStore(filepath.Join(b.TempDir(), "accounts"))
	for b.Loop() {
		n.ledger.publish(n.now)
	}
}

// TestJobstats: families and labels are those of jobstats' exporter. GPU 0 is shared, 1 has a MIG instance, 2 was read in the future, 3
// has no job. Of three sources of GPU 0 the first is stale. The text was written by hand, from main.go of
// github.com/plazonic/nvidia_gpu_prometheus_exporter at 73b8cc4.
func TestJobstats(t *testing.T) {
	const want = `nvidia_gpu_duty_cycle{GPU_I_ID="",jobid="",minor_number="3",name="H100",ordinal="3",userid="",uuid="GPU-d"} 0
nvidia_gpu_duty_cycle{GPU_I_ID="",jobid="17",minor_number="1",name="H100",ordinal="0",userid="1007",uuid="GPU-a"} 80
nvidia_gpu_duty_cycle{GPU_I_ID="",jobid="7_3",minor_number="1",name="H100",ordinal="0",userid="",uuid="GPU-a"} 80
nvidia_gpu_graphics_util_percent{GPU_I_ID="2",jobid="18",minor_number="0",name="H100 MIG 3g.40gb",ordinal="1",userid="0",uuid="MIG-b2"} 0.25
nvidia_gpu_jobId{GPU_I_ID="",jobid="17",minor_number="1",name="H100",ordinal="0",userid="1007",uuid="GPU-a"} 17
nvidia_gpu_jobId{GPU_I_ID="2",jobid="18",minor_number="0",name="H100 MIG 3g.40gb",ordinal="1",userid="0",uuid="MIG-b2"} 18
nvidia_gpu_memory_total_bytes{GPU_I_ID="",jobid="17",minor_number="1",name="H100",ordinal="0",userid="1007",uuid="GPU-a"} 8.388608e+10
nvidia_gpu_memory_total_bytes{GPU_I_ID="",jobid="7_3",minor_number="1",name="H100",ordinal="0",userid="",uuid="GPU-a"} 8.388608e+10
nvidia_gpu_memory_used_bytes{GPU_I_ID="",jobid="17",minor_number="1",name="H100",ordinal="0",userid="1007",uuid="GPU-a"} 1.048576e+09
nvidia_gpu_memory_used_bytes{GPU_I_ID="",jobid="7_3",minor_number="1",name="H100",ordinal="0",userid="",uuid="GPU-a"} 1.048576e+09
nvidia_gpu_memory_used_bytes{GPU_I_ID="2",jobid="18",minor_number="0",name="H100 MIG 3g.40gb",ordinal="1",userid="0",uuid="MIG-b2"} 2.097152e+06
nvidia_gpu_power_usage_milliwatts{GPU_I_ID="",jobid="",minor_number="0",name="H100",ordinal="1",userid="",uuid="GPU-b"} 400500
nvidia_gpu_power_usage_milliwatts{GPU_I_ID="2",jobid="18",minor_number="0",name="H100 MIG 3g.40gb",ordinal="1",userid="0",uuid="MIG-b2"} 400500
nvidia_gpu_temperature_celsius{GPU_I_ID="",jobid="17",minor_number="1",name="H100",ordinal="0",userid="1007",uuid="GPU-a"} 61
nvidia_gpu_temperature_celsius{GPU_I_ID="",jobid="7_3",minor_number="1",name="H100",ordinal="0",userid="",uuid="GPU-a"} 61
`
	s, row, stamps := &view.Source{}, []float64(nil), []int64(nil)
	add := func(d collector.Device, age time.Duration, cells map[field.ID]float64) collector.Device {
		for id, v := range cells {
			s.Columns, row = append(s.Columns, collector.Column{Device: len(stamps), Field: id}), append(row, v)
		}
		s.Devices, stamps = append(s.Devices, d), append(stamps, start.Add(-age).UnixNano())
		s.Ring = ring.Make(2, len(stamps), len(row))
		s.Ring.Append(start.UnixNano(), stamps, row)
		return d
	}
	gpu := func(number, id, node string) collector.Device {
		return collector.Device{ID: id, UUID: id, GPU: number, Node: node, Model: "H100", Level: field.GPU}
	}
	add(gpu("0", "GPU-a", "nvidia1"), 31*time.Second, map[field.ID]float64{memoryUsed: 5})
	board, old := new(view.Board), s
	s, row, stamps = &view.Source{}, nil, nil
	board.Store(&view.View{Sources: []*view.Source{old, s, s}})
	add(gpu("0", "GPU-a", "nvidia1"), 29*time.Second, map[field.ID]float64{memoryUsed: 1000, memoryTotal: 80_000, field.GPUUtilization: 80, field.PowerUsage: unknown, field.GPUTemperature: 61})
	part := collector.InstanceOf(add(gpu("1", "GPU-b", "nvidia0"), 0, map[field.ID]float64{field.PowerUsage: 400.5}), 2, "3g.40gb")
	part.Instance.UUID = "MIG-b2"
	add(part, 0, map[field.ID]float64{memoryUsed: 2, field.EngineActive: 0.25, memoryTotal: -1})
	add(gpu("2", "GPU-c", "nvidia2"), -31*time.Second, map[field.ID]float64{field.GPUUtilization: 50})
	add(gpu("3", "GPU-d", "nvidia3"), 0, map[field.ID]float64{field.GPUUtilization: 0})
	add(collector.Device{ID: "GPU-a/link1", Parent: "GPU-a", Level: field.Link}, 0, nil)
	add(collector.Device{ID: "GPU-e", Level: field.GPU, Unshown: true}, 0, map[field.ID]float64{field.GPUUtilization: 0})
	has := func(job, user string) view.Owner {
		return view.Owner{Labels: []collector.Label{{Name: "hpc_job", Value: job}}, Facts: []collector.Label{{Name: "job_uid", Value: user}}}
	}
	owners := map[string][]view.Owner{"GPU-a": {has("17", "1007"), has("7_3", ""), has("17", "1007")}, part.ID: {has("18", "0")}, "GPU-d": {{}, {}}}
	c := &jobstats{board, func(d *collector.Device) []view.Owner { return owners[d.ID] }, 30 * time.Second, func() time.Time { return start }}
	names := regexp.MustCompile(`(?m)^\w+`).FindAllString(want, -1)
	got := testkit.Get(testutil.CollectAndFormat(c, expfmt.TypeTextPlain, names...))(t)
	testkit.Equal(t, "series", want, regexp.MustCompile(`(?m)^# (HELP .*|TYPE \w+ gauge)\n`).ReplaceAllString(string(got), ""))
}
