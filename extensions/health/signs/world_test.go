package signs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// step is the interval of the simulated sampling.
const step = 10 * time.Second

// node is a simulated node without a fault: its rows go into rings as a session writes them, and
// its clock is the test's.
type node struct {
	kind  kind
	now   time.Time
	rand  *rand.Rand
	board view.Board
	gpus  []*gpu
	shape func(g *gpu, sinceStart time.Duration) float64 // load, 0 to 1
	fault func(g *gpu)                                   // after each step; nil: none
	start time.Time

	version  uint64 // of views
	released bool
	said     []session.CollectorStatus // until something changes
	users    map[string]string         // by device; "": none
	owners   uint64                    // version
}

// kind is what a node has.
type kind struct {
	collector, model string
	gpus, links      int
	power, clock     float64 // most W, MHz
	ecc, remaps      bool
	mig              int // GPUs that are divided
	// Background rates, events per GPU and hour.
	corrected, replays, linkReplays, linkCRC float64
}

// The nodes. They have more single corrected errors and replays than most: the healthy GPUs next to
// the one of NVIDIA/DCGM#313 had no corrected error at all. Of PCIe replays DCGM allows 8 a minute.
var (
	h100    = kind{collector: "nvml", model: "NVIDIA H100 80GB HBM3", gpus: 8, links: 18, power: 700, clock: 1980, ecc: true, remaps: true, corrected: 0.2, replays: 3, linkReplays: 1, linkCRC: 30}
	a100    = kind{collector: "dcgm", model: "NVIDIA A100-SXM4-80GB", gpus: 8, links: 12, power: 400, clock: 1410, ecc: true, remaps: true, mig: 4, corrected: 0.1, replays: 3, linkReplays: 1, linkCRC: 30}
	geForce = kind{collector: "nvml", model: "NVIDIA GeForce RTX 4090", gpus: 4, power: 450, clock: 2520, replays: 20}
	mi300x  = kind{collector: "rocm", model: "AMD Instinct MI300X", gpus: 8, power: 750, clock: 2100, ecc: true, corrected: 0.5, replays: 1}
)

// gpu is a simulated GPU.
type gpu struct {
	collector.Device
	n                              int
	chip                           float64 // how good it is: clock at the power limit
	load, clock, power, temp, mask float64
	sbe, replay, energy            float64
	low, none, ber                 float64
	heat, capped                   float64 // ns of thermal and power violation
	links                          [][4]float64
	hot                            bool                 // air is warm: slows down now and then
	values                         map[field.ID]float64 // what a fault sets
	instance                       []collector.Device
	replayed, crc, heated, limited time.Time // when that happened to a link, or to the GPU, last

	source *view.Source
	cells  []func() float64
	row    []float64
	stamps []int64
}

func newNode(k kind, seed uint64, start time.Time) *node {
	n := &node{kind: k, now: start, start: start, rand: rand.New(rand.NewPCG(seed, seed)), users: map[string]string{}}
	for i := range k.gpus {
		id := fmt.Sprintf("GPU-%d", i)
		if k.collector == "rocm" {
			id = fmt.Sprintf("0x%016x", i+1)
		}
		g := &gpu{
			n: i, chip: 0.86 + 0.08*n.rand.Float64(), temp: 35, values: map[field.ID]float64{},
			Device: collector.Device{ID: id, Level: field.GPU, GPU: strconv.Itoa(i), UUID: id, PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 16*i+27), Model: k.model},
		}
		for range k.links {
			g.links = append(g.links, [4]float64{})
		}
		n.gpus = append(n.gpus, g)
	}
	n.shape = func(*gpu, time.Duration) float64 { return 0 }
	n.divide(0)
	n.open()
	return n
}

// divide makes instances of the GPUs that are divided: seven, or others.
func (n *node) divide(layout int) {
	for i, g := range n.gpus {
		g.instance = nil
		if i >= n.kind.mig {
			continue
		}
		for j := range 7 - 3*layout {
			id := strconv.Itoa(7 + j)
			d := g.Device
			d.ID, d.Parent, d.Level = g.ID+"/"+id, g.ID, field.Instance
			d.Instance = collector.Instance{ID: id, Profile: "1g.10gb"}
			g.instance = append(g.instance, d)
		}
	}
}

// add adds a column to the source of a GPU.
func (g *gpu) add(id field.ID, v func() float64, labels ...string) {
	c := collector.Column{Device: len(g.source.Devices) - 1, Field: id}
	for i := 0; i < len(labels); i += 2 {
		c.Labels = append(c.Labels, collector.Label{Name: labels[i], Value: labels[i+1]})
	}
	g.source.Columns, g.cells = append(g.source.Columns, c), append(g.cells, v)
}

// watches are those of DCGM_EXP_GPU_HEALTH_STATUS that a healthy GPU fails now and then: by NVIDIA's rules
// (collectors/nvml, health_rules.go) one error of a link within a minute is a failure or a warning.
var watches = []struct {
	watch, code string
	result      float64
	last        func(*gpu) *time.Time
}{
	{"NVLINK", "DCGM_FR_NVLINK_ERROR_CRITICAL", 20, func(g *gpu) *time.Time { return &g.replayed }},
	{"NVLINK", "DCGM_FR_NVLINK_ERROR_THRESHOLD", 10, func(g *gpu) *time.Time { return &g.crc }},
	{"THERMAL", "DCGM_FR_CLOCK_THROTTLE_THERMAL", 10, func(g *gpu) *time.Time { return &g.heated }},
	{"POWER", "DCGM_FR_CLOCK_THROTTLE_POWER", 10, func(g *gpu) *time.Time { return &g.limited }},
}

// addColumns adds the columns of a GPU, of its instances and of its links.
func (n *node) addColumns(g *gpu) {
	always := func(v float64) func() float64 { return func() float64 { return v } }
	of := func(v *float64) func() float64 { return func() float64 { return *v } }
	whole := func(v *float64) func() float64 { return func() float64 { return math.Round(*v) } }
	load := func(times float64) func() float64 { return func() float64 { return g.load * times } }
	g.add(100, whole(&g.clock))
	g.add(150, whole(&g.temp))
	g.add(155, of(&g.power))
	g.add(field.ClockEventReasons, of(&g.mask))
	g.add(202, of(&g.replay))
	g.add(156, whole(&g.energy))
	g.add(240, of(&g.capped))
	g.add(241, of(&g.heat))
	if len(g.instance) == 0 {
		g.add(203, load(100))
		g.add(1001, load(1))
		g.add(1004, load(0.6))
	}
	if n.kind.ecc {
		g.add(310, of(&g.sbe))
		g.add(311, always(0))
		g.add(312, of(&g.sbe))
	}
	if n.kind.remaps {
		for _, id := range []field.ID{392, 393, 394, 395, 396, 346, 1507, 1523} { // counts of what has not happened
			g.add(id, always(0))
		}
		g.add(170, always(3)) // registered with the fabric,
		g.add(175, always(1)) // which is healthy
		if len(g.instance) == 0 {
			g.add(388, of(&g.low))
			g.add(389, of(&g.none))
		}
	}
	if n.kind.collector == "rocm" {
		g.add(field.AMDRASErrors, of(&g.sbe), "block", "umc", "severity", "ce")
		g.add(field.AMDRASErrors, always(0), "block", "umc", "severity", "ue")
		g.add(field.AMDXGMILinkUp, always(1), "link", "0")
		g.add(field.AMDBadPages, always(0), "state", "pending")
		g.add(field.AMDBadPages, always(0), "state", "failed")
	} else {
		g.add(field.XIDErrors, always(0))
		for _, w := range watches {
			g.add(field.GPUHealth, func() float64 {
				if n.now.Sub(*w.last(g)) < time.Minute {
					return w.result
				}
				return math.NaN()
			}, "health_error_code", w.code, "health_watch", w.watch)
		}
	}
	if len(g.links) > 0 {
		g.add(1218, of(&g.ber))
	}
	for _, d := range g.instance {
		g.source.Devices = append(g.source.Devices, d)
		g.add(1001, load(1))
	}
	for l := range g.links {
		name := strconv.Itoa(l)
		d := g.Device
		d.ID, d.Parent, d.Level, d.Labels = g.ID+"/link"+name, g.ID, field.Link, []collector.Label{{Name: "nvlink", Value: name}}
		g.source.Devices = append(g.source.Devices, d)
		for i := range g.links[l] {
			g.add(field.ID(1525+i), of(&g.links[l][i]))
		}
	}
}

// open begins a session: a source for each GPU, with its instances and links.
func (n *node) open() {
	v := &view.View{}
	n.version++
	v.Version, n.said = n.version, nil
	for _, g := range n.gpus {
		g.source, g.cells = &view.Source{Collector: n.kind.collector, Interval: step, Devices: []collector.Device{g.Device}}, nil
		n.addColumns(g)
		g.source.Ring = ring.Make(16, len(g.source.Devices), len(g.source.Columns))
		g.stamps, g.row = make([]int64, len(g.source.Devices)), make([]float64, len(g.cells))
		v.Sources = append(v.Sources, g.source)
	}
	n.board.Store(v)
}

// release is an operator's, for a time; with driver, another one is installed meanwhile.
func (n *node) release(driver bool) {
	n.close(driver)
	n.released, n.said = true, nil
}

func (n *node) resume() {
	n.released = false
	n.open()
}

// status is what the collector says of its devices.
func (n *node) status() []session.CollectorStatus {
	if n.said != nil {
		return n.said
	}
	st := session.CollectorStatus{Name: n.kind.collector, Up: !n.released, Since: n.now}
	if n.released {
		st.Cause = session.CauseReleased
	}
	for _, g := range n.gpus {
		devices := append([]collector.Device{g.Device}, g.instance...)
		if g.source != nil {
			devices = g.source.Devices
		}
		for _, d := range devices {
			ds := session.DeviceStatus{Device: d, LastSample: n.now}
			if n.released {
				ds.State, ds.Cause = session.Released, session.CauseReleased
			}
			st.Devices = append(st.Devices, ds)
		}
	}
	n.said = []session.CollectorStatus{st}
	return n.said
}

// close ends the session, and with it what the driver counts.
func (n *node) close(driver bool) {
	n.version++
	n.said = nil
	n.board.Store(&view.View{Version: n.version})
	for _, g := range n.gpus {
		if driver {
			g.sbe, g.replay, g.heat, g.capped, g.energy = 0, 0, 0, 0, 0
			for l := range g.links {
				g.links[l] = [4]float64{}
			}
		}
		g.source = nil
	}
}

// happens is how often what has a rate per hour happens in a step.
func (n *node) happens(perHour float64) (count float64) {
	p := perHour * step.Hours()
	for p > 0 {
		if n.rand.Float64() < p {
			count++
		}
		p--
	}
	return count
}

// tick is one step of the node.
func (n *node) tick() {
	n.now = n.now.Add(step)
	for _, g := range n.gpus {
		n.work(g)
		if n.fault != nil {
			n.fault(g)
		}
		if g.source != nil {
			n.sample(g)
		}
	}
}

// work is what a GPU does in a step.
func (n *node) work(g *gpu) {
	k := &n.kind
	g.load = min(1, max(0, n.shape(g, n.now.Sub(n.start))*(1+0.03*n.rand.NormFloat64())))
	g.mask, g.power = 0, k.power*(0.12+0.98*g.load)+4*n.rand.NormFloat64()
	g.clock = k.clock
	switch {
	case g.load < 0.01:
		g.mask, g.clock = 1, 345
	case g.power > k.power*0.98: // at its limit, as a busy one always is
		g.mask, g.power, g.clock = 1<<2, k.power*0.99, k.clock*g.chip*(1+0.01*n.rand.NormFloat64())
		g.capped += float64(step)
		g.limited = n.now
	}
	g.temp += (28 + 48*g.power/k.power + float64(g.n) - g.temp) * 0.05
	if g.hot && g.load > 0.5 && n.now.Minute() < 8 { // slows down for eight minutes of an hour
		g.mask, g.temp, g.clock = g.mask+1<<5, 84, g.clock*0.8
		g.heat += float64(step)
		g.heated = n.now
	}
	g.energy += g.power * step.Seconds() * 1000
	g.replay += n.happens(k.replays)
	if k.ecc {
		g.sbe += n.happens(k.corrected)
	}
	if by := n.happens(k.linkCRC); by > 0 {
		g.links[n.rand.IntN(k.links)][0] += by
		g.crc = n.now
	}
	if by := n.happens(k.linkReplays); by > 0 {
		g.links[n.rand.IntN(k.links)][2] += by
		g.replayed = n.now
	}
}

// sample appends a row.
func (n *node) sample(g *gpu) {
	for i := range g.cells {
		g.row[i] = g.cells[i]()
		if v, ok := g.values[g.source.Columns[i].Field]; ok {
			g.row[i] = v
		}
	}
	for i := range g.stamps {
		g.stamps[i] = n.now.UnixNano()
	}
	g.source.Ring.Append(n.now.UnixNano(), g.stamps, g.row)
}

// Version and Users make the node Owners of its devices.
func (n *node) Version() uint64 { return n.owners }

func (n *node) Users(d *collector.Device) []owner.Owner {
	if pod := n.users[d.ID]; pod != "" {
		return []owner.Owner{{Namespace: "ml", Pod: pod, Container: "main"}}
	}
	return nil
}

// use gives devices to a pod, "" to none.
func (n *node) use(pod string, gpus ...int) {
	n.owners++
	for _, i := range gpus {
		n.users[n.gpus[i].ID] = pod
	}
}

// The shapes of load.

// training is full load with a checkpoint now and then, all GPUs at once.
func training(g *gpu, t time.Duration) float64 {
	if t%(20*time.Minute) < 30*time.Second {
		return 0.1
	}
	return 0.97
}

// inference is what requests ask for, of each GPU something else, by day and by night.
func inference(g *gpu, t time.Duration) float64 {
	day := 0.5 - 0.5*math.Cos(2*math.Pi*t.Hours()/24)
	wave := 0.5 + 0.5*math.Sin(2*math.Pi*t.Minutes()/float64(7+3*g.n)+float64(g.n))
	return 0.05 + 0.9*day*wave
}

// mixed is training on the first half of the GPUs, and inference, or nothing, on the others.
func mixed(g *gpu, t time.Duration) float64 {
	switch {
	case g.n < 4:
		return training(g, t)
	case g.n < 6:
		return inference(g, t)
	}
	return 0
}
