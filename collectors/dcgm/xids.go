//go:build linux && cgo

package dcgm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

const (
	slotsOfGPU      = 4               // XIDs of a GPU per row; further XIDs wait for the next tick
	slotsOfInstance = 2               // XIDs of an instance per row
	xidPending      = 256             // maximum number of waiting XIDs; dropped XIDs are reported as a gap
	xidRoom         = 256             // maximum number of XIDs per call
	xidKeep         = 5 * time.Minute // how long the engine keeps XIDs
	lifeEvery       = 10 * time.Second
	lifeSlack       = time.Millisecond // how far an XID's timestamp may precede its appearance
)

// xids supplies DCGM_FI_DEV_XID_ERRORS, the last XID, and the event columns behind DCGM_EXP_XID_ERRORS_*. The engine
// keeps a history of XIDs by GPU, GPU instance and compute instance, even without a watch. When a timestamp changes,
// xids fetches everything since the previous one. Open continues where the earlier session ended. XIDs from before the
// first session are not reported.
type xids struct {
	partBase
	engine *engine
	values *readings // reads block in its calls

	block   *block      // of all entities that can have XIDs
	of      []int       // by entity: index into devices
	fetched []int64     // by entity: timestamp of the newest XID that was fetched or must not be reported, Unix µs
	life    *batch      // a field of one GPU whose history shows when the engine started; may be nil
	devices []xidDevice // devices with columns

	events []event
	now    func() time.Time
	looked time.Time // when life was last read
}

// xidDevice is a GPU, an instance or a compute instance.
type xidDevice struct {
	device int    // index in the source
	number uint32 // the GPU's number, for logs
	last   int    // column of the last XID; -1: not in the list
	slots  []int  // event columns
	until  int    // column of field.XIDsUntil; -1: no events in the list
	since  int    // column of field.XIDsSince; -1: an instance

	whole   float64 // start of the time without missed XIDs, Unix µs; 0 if none was missed since the previous session
	pending []cell  // XIDs that wait for a row, by time
	put     int64   // timestamp of the last XID in a row
	code    float64 // the last XID
	at      int64   // timestamp of the last XID; 0 without one
	armed   bool    // the engine has answered for the device
	lost    bool    // XIDs were dropped, and that was logged
}

// newXIDs watches the XIDs of a node's GPUs and their instances. It returns nil if the list or the engine does not have
// them. until holds, by device, the timestamp of the last XID that earlier sessions reported.
func newXIDs(e *engine, n *node, values *readings, list []field.Reading, refused refusals, until map[string]int64, o Options) (part, error) {
	last, events := field.Asks(list, field.XIDErrors), field.Asks(list, field.XIDEvent)
	if !last && !events || len(n.byKind(kindGPU)) == 0 {
		return nil, nil
	}
	x := &xids{partBase: partBase{log: o.Log}, engine: e, values: values, now: time.Now, events: make([]event, xidRoom)}
	x.cost.Call = "dcgmGetValuesSince_v2"
	if err := x.watch(n, refused, o); err != nil || len(x.block.fields) == 0 {
		return nil, err
	}
	for _, d := range x.block.devices {
		x.bind(d, n, last, events)
	}
	for _, device := range x.block.devices {
		x.of = append(x.of, slices.IndexFunc(x.devices, func(d xidDevice) bool { return d.device == device }))
	}
	return x, x.begin(n, until, list, o)
}

// watch makes the engine watch the XIDs of every entity that can have them.
func (x *xids) watch(n *node, refused refusals, o Options) error {
	gpus := n.byKind(kindGPU)
	all := slices.Concat(gpus, n.byKind(kindInstance), n.byKind(kindCompute))
	b := newBlock(n, kindGPU, o.Interval, all, []uint16{uint16(field.XIDErrors)})
	for c, device := range n.computes {
		b.devices, b.entities = append(b.devices, device), append(b.entities, c)
	}
	b.keep = xidKeep
	err := b.watch(x.engine, refused)
	if err == nil && len(b.fields) == 0 && len(b.entities) > len(gpus) { // the engine may only have XIDs of GPUs
		b = newBlock(n, kindGPU, o.Interval, gpus, []uint16{uint16(field.XIDErrors)})
		b.keep = xidKeep
		err = b.watch(x.engine, refused)
	}
	if err != nil {
		return fmt.Errorf("watch XIDs: %w", err)
	}
	b.column = -1
	x.block = b
	return nil
}

// bind adds the columns of a device, once.
func (x *xids) bind(device int, n *node, last, events bool) {
	if slices.ContainsFunc(x.devices, func(d xidDevice) bool { return d.device == device }) {
		return
	}
	column := func(id field.ID, labels ...collector.Label) int {
		x.cols = append(x.cols, collector.Column{Device: device, Field: id, Labels: labels})
		return len(x.cols) - 1
	}
	d := xidDevice{device: device, number: n.entities[device].id, last: -1, until: -1, since: -1}
	if last {
		d.last = column(field.XIDErrors)
	}
	if events {
		slots := slotsOfInstance
		if n.entities[device].kind == kindGPU {
			slots = slotsOfGPU
			d.since = column(field.XIDsSince)
		}
		for slot := range slots {
			d.slots = append(d.slots, column(field.XIDEvent, collector.Label{Name: "slot", Value: strconv.Itoa(slot)}))
		}
		d.until = column(field.XIDsUntil)
	}
	x.devices = append(x.devices, d)
}

// begin marks the XIDs in the engine's history that were already reported.
func (x *xids) begin(n *node, until map[string]int64, list []field.Reading, o Options) error {
	if err := newBatch(x.engine.room, x.block).read(x.engine, x.values.buffer, &x.values.cost); err != nil {
		return fmt.Errorf("read XIDs: %w", err)
	}
	x.fetched = make([]int64, len(x.block.cells))
	for i, c := range x.block.cells {
		d := &x.devices[x.of[i]]
		last, known := until[n.devices[d.device].ID]
		if !known {
			last = c.micros
		}
		x.fetched[i], d.put = last, max(d.put, last)
	}
	x.values.add(x.block)
	lives := x.lives(n, list, o)
	for i := range x.devices {
		d := &x.devices[i]
		d.whole = float64(x.now().UnixMicro())
		last, known := until[n.devices[d.device].ID]
		if known && lives != 0 && lives <= last+2*lifeSlack.Microseconds() {
			d.whole = 0
		}
	}
	return nil
}

// lives returns the oldest known timestamp at which the engine was running, or 0 if unknown. The engine keeps the history
// of one extra field for that. The list must not have this field, because the engine remembers only a client's last
// watch of a field.
func (x *xids) lives(n *node, list []field.Reading, o Options) int64 {
	id := uint16(65) // DCGM_FI_DEV_COMPUTE_MODE
	if field.Asks(list, field.ID(id)) {
		id = 66 // DCGM_FI_DEV_PERSISTENCE_MODE
	}
	b := newBlock(n, kindGPU, max(lifeEvery, o.Interval), n.byKind(kindGPU)[:1], []uint16{id})
	b.keep = xidKeep
	if err := b.watch(x.engine, refusals{}); err != nil || len(b.fields) == 0 {
		return 0
	}
	x.life = newBatch(1, b)
	if count, err := x.engine.since(b, []int64{0}, x.events[:1]); err != nil || count == 0 {
		return 0
	}
	return x.events[0].micros
}

// sample writes new XIDs into the row. Event cells are NaN on entry.
func (x *xids) sample(row []float64, due []bool) error {
	if now := x.now(); x.life != nil && (x.life.cells[0].micros == 0 || now.Sub(x.looked) >= lifeEvery) {
		x.looked = now
		if err := x.life.read(x.engine, x.values.buffer, &x.values.cost); err != nil {
			return fmt.Errorf("read when the engine started: %w", err)
		}
	}
	for i := range x.devices {
		x.devices[i].armed = false
	}
	fetch := false
	for i, c := range x.block.cells {
		d := &x.devices[x.of[i]]
		d.armed = d.armed || c.status == statusOK || c.status == statusNoData
		if c.micros > d.at && !math.IsNaN(c.value) {
			d.at, d.code = c.micros, c.value
		}
		fetch = fetch || c.micros > x.fetched[i]
	}
	if fetch && x.devices[0].until >= 0 {
		if err := x.fetch(); err != nil {
			return err
		}
	}
	for i := range x.devices {
		x.devices[i].fill(row, due, x.life)
	}
	return nil
}

// fetch reads the XIDs since the last fetch. After an error the next sample tries again.
func (x *xids) fetch() error {
	count := 0
	err := x.try("cannot read XIDs; counting them after the next successful read", func() (err error) {
		count, err = x.engine.since(x.block, x.fetched, x.events)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("read the history of XIDs: %w", err)
	case x.failed:
		return nil
	}
	for _, e := range x.events[:count] {
		x.fetched[e.of] = max(x.fetched[e.of], e.micros)
		d := &x.devices[x.of[e.of]]
		switch {
		case math.IsNaN(e.value) || e.value <= 0:
		case len(d.pending) < xidPending:
			d.pending = append(d.pending, e.cell)
		default:
			d.whole = float64(x.now().UnixMicro())
			if !d.lost {
				d.lost = true
				x.log.Warn("too many XIDs for the rows; some are not counted", zap.Uint32("device", d.number))
			}
		}
	}
	for i := range x.devices { // a compute instance and its GPU instance may share a device
		slices.SortStableFunc(x.devices[i].pending, func(a, b cell) int { return cmp.Compare(a.micros, b.micros) })
	}
	for i, c := range x.block.cells { // for example one without a number
		if count < len(x.events) {
			x.fetched[i] = max(x.fetched[i], c.micros)
		}
	}
	return nil
}

// fill moves waiting XIDs into the due cells of a row.
func (d *xidDevice) fill(row []float64, due []bool, life *batch) {
	if d.last >= 0 && due[d.last] {
		row[d.last] = math.NaN()
		switch {
		case d.at != 0:
			row[d.last] = d.code
		case d.armed:
			row[d.last] = 0
		}
	}
	used := 0
	for _, i := range d.slots {
		if used < len(d.pending) && due[i] {
			row[i], d.put = d.pending[used].value, d.pending[used].micros
			used++
		}
	}
	d.pending = slices.Delete(d.pending, 0, used)
	if len(d.pending) == 0 && life != nil {
		d.put = max(d.put, life.cells[0].micros-lifeSlack.Microseconds())
	}
	if d.until >= 0 && due[d.until] {
		row[d.until] = float64(d.put)
	}
	if d.since >= 0 && due[d.since] {
		row[d.since] = d.whole
	}
}
