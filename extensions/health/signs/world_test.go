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
	columns  int    // in addition, as another list has
	released bool
	said     []session.CollectorStatus // until something changes
	users    map[string]string         // by device; "": none
	owners   uint64                    // version
	slow     func(g *gpu) float64
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
	n        int
	chip     float64 // how good it is: clock at the power limit
	load     float64
	clock    float64
	power    float64
	temp     float64
	mask     float64
	sbe      float64
	replay   float64
	low      float64
	none     float64
	ber      float64
	energy   float64
	heat     float64 // ns of thermal violation
	capped   float64 // ns of power violation
	links    [][4]float64
	hot      bool // air is warm: slows down now and then
	calls    uint64
	seconds  float64
	values   map[field.ID]float64 // what a fault sets
	instance []collector.Device
	replayed time.Time // when a link replayed last
	crc      time.Time // when a link had a CRC error last
	heated   time.Time // when the GPU was slowed down by heat last
	limited  time.Time // when it was at its power limit last

	stamps []int64
	row    []float64
	of     []int // by column: the link, or the health watch
	source *view.Source
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
	n.slow = func(*gpu) float64 { return 0 }
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

// readings are those of a GPU, in the order of the row.
func (n *node) readings(g *gpu) []field.ID {
	out := []field.ID{100, 150, 155, field.ClockEventReasons, 202, 156, 240, 241}
	if len(g.instance) == 0 {
		out = append(out, 203, 1001, 1004)
	}
	if n.kind.ecc {
		out = append(out, 310, 311, 312)
	}
	if n.kind.remaps {
		out = append(out, 392, 393, 394, 395, 396, 346, 1507, 1523, 170, 175)
		if len(g.instance) == 0 {
			out = append(out, 388, 389)
		}
	}
	if n.kind.collector != "rocm" {
		out = append(out, field.XIDErrors)
	}
	return out
}

// watches are the columns of DCGM_EXP_GPU_HEALTH_STATUS: one for each reason, of which that
// holds the result and the others are blank. As NVIDIA's rules are (collectors/nvml,
// health_rules.go), a single error of a link within a minute is a failure or a warning.
var watches = []struct {
	watch, code string
	result      float64
	since       func(*gpu) time.Time
}{
	{"NVLINK", "DCGM_FR_NVLINK_ERROR_CRITICAL", 20, func(g *gpu) time.Time { return g.replayed }},
	{"NVLINK", "DCGM_FR_NVLINK_ERROR_THRESHOLD", 10, func(g *gpu) time.Time { return g.crc }},
	{"THERMAL", "DCGM_FR_CLOCK_THROTTLE_THERMAL", 10, func(g *gpu) time.Time { return g.heated }},
	{"POWER", "DCGM_FR_CLOCK_THROTTLE_POWER", 10, func(g *gpu) time.Time { return g.limited }},
	{"NVLINK", "DCGM_FR_OK", 0, nil},
	{"THERMAL", "DCGM_FR_OK", 0, nil},
	{"POWER", "DCGM_FR_OK", 0, nil},
	{"MEM", "DCGM_FR_OK", 0, nil},
}

// watched is the result in a column of a health watch.
func (n *node) watched(g *gpu, column int) float64 {
	for i := range watches {
		if w := &watches[i]; w.watch == watches[column].watch && (w.since == nil || n.now.Sub(w.since(g)) < time.Minute) {
			if i == column {
				return w.result
			}
			break
		}
	}
	return math.NaN()
}

// open begins a session: a source for each GPU, with its instances and links.
func (n *node) open() {
	v := &view.View{}
	n.version++
	v.Version, n.said = n.version, nil
	for _, g := range n.gpus {
		src := &view.Source{Collector: n.kind.collector, Interval: step, Devices: []collector.Device{g.Device}}
		of := map[int]int{}
		for _, id := range n.readings(g) {
			src.Columns = append(src.Columns, collector.Column{Field: id})
		}
		if n.kind.collector == "rocm" {
			for i, label := range []string{"ce", "ue", "de"} {
				of[len(src.Columns)] = i
				src.Columns = append(src.Columns, collector.Column{Field: field.AMDRASErrors, Labels: []collector.Label{{Name: "block", Value: "umc"}, {Name: "severity", Value: label}}})
			}
			for l := range 7 {
				src.Columns = append(src.Columns, collector.Column{Field: field.AMDXGMILinkUp, Labels: []collector.Label{{Name: "link", Value: strconv.Itoa(l)}}})
			}
			for _, label := range []string{"retired", "pending", "failed"} {
				src.Columns = append(src.Columns, collector.Column{Field: field.AMDBadPages, Labels: []collector.Label{{Name: "state", Value: label}}})
			}
		} else {
			for i, w := range watches {
				of[len(src.Columns)] = i
				src.Columns = append(src.Columns, collector.Column{Field: field.GPUHealth, Labels: []collector.Label{{Name: "health_error_code", Value: w.code}, {Name: "health_watch", Value: w.watch}}})
			}
		}
		for _, d := range g.instance {
			src.Columns = append(src.Columns, collector.Column{Device: len(src.Devices), Field: 1001})
			src.Devices = append(src.Devices, d)
		}
		for l := range g.links {
			name := strconv.Itoa(l)
			for id := range 4 {
				of[len(src.Columns)] = l
				src.Columns = append(src.Columns, collector.Column{Device: len(src.Devices), Field: field.ID(1525 + id)})
			}
			src.Devices = append(src.Devices, collector.Device{ID: g.ID + "/link" + name, Parent: g.ID, Level: field.Link, GPU: g.GPU, UUID: g.UUID, PCIBusID: g.PCIBusID, Model: g.Model,
				Labels: []collector.Label{{Name: "nvlink", Value: name}}})
		}
		src.Columns = append(src.Columns, collector.Column{Field: 1218})
		for i := range n.columns {
			src.Columns = append(src.Columns, collector.Column{Field: field.ID(1005 + i)})
		}
		src.Ring = ring.Make(16, len(src.Devices), len(src.Columns))
		g.source, g.stamps, g.row = src, make([]int64, len(src.Devices)), make([]float64, len(src.Columns))
		g.calls, g.seconds, g.of = 0, 0, make([]int, len(src.Columns))
		for column, i := range of {
			g.of[column] = i
		}
		v.Sources = append(v.Sources, src)
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
	g.calls++
	g.seconds += 0.004 + 0.02*max(0, n.rand.NormFloat64())*g.load + n.slow(g)
}

// sample appends a row.
func (n *node) sample(g *gpu) {
	src := g.source
	for i := range src.Columns {
		id := src.Columns[i].Field
		g.row[i] = n.value(g, id, g.of[i])
		if len(g.values) > 0 {
			if v, ok := g.values[id]; ok {
				g.row[i] = v
			}
		}
	}
	stamp := n.now.UnixNano()
	for i := range g.stamps {
		g.stamps[i] = stamp
	}
	src.Ring.Append(stamp, g.stamps, g.row)
}

func (n *node) value(g *gpu, id field.ID, of int) float64 {
	switch id {
	case field.GPUHealth:
		return n.watched(g, of)
	case field.AMDRASErrors:
		if of > 0 {
			return 0
		}
		return g.sbe
	case field.AMDXGMILinkUp, 175: // the fabric is healthy
		return 1
	case 170: // the GPU is registered with it
		return 3
	case 100:
		return math.Round(g.clock)
	case 150:
		return math.Round(g.temp)
	case 155:
		return g.power
	case field.ClockEventReasons:
		return g.mask
	case 202:
		return g.replay
	case 156:
		return math.Round(g.energy)
	case 240:
		return g.capped
	case 241:
		return g.heat
	case 203:
		return math.Round(100 * g.load)
	case 1001:
		return g.load
	case 1004:
		return g.load * 0.6
	case 310, 312:
		return g.sbe
	case 388:
		return g.low
	case 389:
		return g.none
	case 1525, 1526, 1527, 1528:
		return g.links[of][id-1525]
	case 1218:
		if n.kind.links == 0 {
			return math.NaN()
		}
		return g.ber
	}
	return 0 // counts of what has not happened
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

// Costs makes the node an Engine.
func (n *node) Costs() []session.Costs {
	c := session.Costs{Collector: n.kind.collector, Sources: map[string]session.SourceCost{}}
	for _, g := range n.gpus {
		if g.source != nil {
			c.Sources[g.ID] = session.SourceCost{Samples: g.calls, Time: time.Duration(g.seconds * 1e9)}
		}
	}
	return []session.Costs{c}
}

// The shapes of load.

func idle(g *gpu, t time.Duration) float64 { return 0 }

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
