package signs

import (
	"fmt"
	"strconv"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// every is the interval of the simulated sampling.
const every = 10 * time.Second

// gpus is the number of GPUs.
const gpus = 8

// Readings of the simulated GPUs. Link readings belong to one link per GPU.
const (
	clock, load, engine, ber field.ID = 100, 203, 1001, 1218
	crc, replays, recoveries field.ID = 1525, 1527, 1528
)

var all = []field.ID{clock, load, engine, ber, field.ClockEventReasons, crc, replays, recoveries}

// node has busy GPUs whose readings the test sets. It writes rows into rings as a session does, and its clock belongs to
// the test.
type node struct {
	now     time.Time
	board   view.Board
	version uint64 // version of views
	ids     []field.ID
	gpus    []*gpu
	divided bool           // every GPU has an instance
	fault   func(g *gpu)   // changes a GPU at each step, unless nil
	users   map[int]string // by GPU
	owners  uint64         // version of the users
	said    []session.CollectorStatus
}

// gpu is a simulated GPU.
type gpu struct {
	collector.Device
	n      int
	values map[field.ID]float64
	source *view.Source // nil while no session samples it
	row    []float64
	stamps []int64
}

func newNode(start time.Time, ids ...field.ID) *node {
	n := &node{now: start, ids: ids, users: map[int]string{}, said: []session.CollectorStatus{{Name: "nvml", Up: true}}}
	for i := range gpus {
		id := "GPU-" + strconv.Itoa(i)
		n.gpus = append(n.gpus, &gpu{
			n: i, values: map[field.ID]float64{clock: 1700 + float64(5*i), load: 97, engine: 0.97},
			Device: collector.Device{ID: id, Level: field.GPU, GPU: strconv.Itoa(i), PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 16*i+27), Model: "NVIDIA H100 80GB HBM3"},
		})
		n.said[0].Devices = append(n.said[0].Devices, session.DeviceStatus{Device: n.gpus[i].Device, LastSample: start})
	}
	n.open()
	return n
}

// open starts a session with one source per GPU, which has an instance and a link.
func (n *node) open() {
	n.version++
	v := &view.View{Version: n.version}
	for _, g := range n.gpus {
		s := &view.Source{Collector: "nvml", Interval: every, Devices: []collector.Device{g.Device}}
		if n.divided {
			d := g.Device
			d.ID, d.Parent, d.Level = g.ID+"/7", g.ID, field.Instance
			s.Devices = append(s.Devices, d)
		}
		d := g.Device
		d.ID, d.Parent, d.Level, d.Labels = g.ID+"/link4", g.ID, field.Link, []collector.Label{{Name: "nvlink", Value: "4"}}
		s.Devices = append(s.Devices, d)
		for _, id := range n.ids {
			c := collector.Column{Field: id}
			if id == field.NVLinkErrors {
				c.Labels = []collector.Label{{Name: "kind", Value: "corrected"}}
			}
			if id >= crc {
				c.Device = len(s.Devices) - 1
			}
			s.Columns = append(s.Columns, c)
		}
		s.Ring = ring.Make(16, len(s.Devices), len(s.Columns))
		g.source, g.row, g.stamps = s, make([]float64, len(s.Columns)), make([]int64, len(s.Devices))
		v.Sources = append(v.Sources, s)
	}
	n.board.Store(v)
}

// close ends the session.
func (n *node) close() {
	n.version++
	n.board.Store(&view.View{Version: n.version})
	for _, g := range n.gpus {
		g.source = nil
	}
}

// status returns the device states from the collector.
func (n *node) status() []session.CollectorStatus { return n.said }

// tick is one step of the node.
func (n *node) tick() {
	n.now = n.now.Add(every)
	for _, g := range n.gpus {
		if n.fault != nil {
			n.fault(g)
		}
		if g.source != nil {
			n.sample(g)
		}
	}
}

// sample appends a row.
func (n *node) sample(g *gpu) {
	for i, id := range n.ids {
		g.row[i] = g.values[id]
	}
	for i := range g.stamps {
		g.stamps[i] = n.now.UnixNano()
	}
	g.source.Ring.Append(n.now.UnixNano(), g.stamps, g.row)
}

// Version and Users implement Owners.
func (n *node) Version() uint64 { return n.owners }

func (n *node) Users(d *collector.Device) []owner.Owner {
	i, _ := strconv.Atoi(d.GPU)
	if pod := n.users[i]; pod != "" {
		return []owner.Owner{{Namespace: "ml", Pod: pod, Container: "main"}}
	}
	return nil
}

// use assigns GPUs to a pod.
func (n *node) use(pod string, gpus ...int) {
	n.owners++
	for _, i := range gpus {
		n.users[i] = pod
	}
}
