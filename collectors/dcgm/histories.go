//go:build linux && cgo

package dcgm

import (
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

const (
	historyKeep = 10 * time.Second // how long the engine keeps the values for histograms
	historyRoom = 1024             // maximum number of values per call
	historyPace = 10               // values per second that a buffer has room for: another client may poll faster than the list
)

// histories supplies, for histograms, every GPU value that the engine has read since the last row. The engine polls a
// field as fast as its fastest client, and a missed tick loses no value.
type histories struct {
	partBase
	engine *engine
	all    []*history
	events []event
}

// history is one field of GPUs. The slices are by entity of the block.
type history struct {
	block   *block
	fetched []int64 // timestamp of the newest fetched value, Unix µs
	buffers []*collector.Buffer
	columns []int // first column of each buffer
}

var _ part = (*histories)(nil)

// newHistories watches the histogram fields of a node's GPUs that have columns, nil if there are none. It must run
// after the readings' watches, because the engine remembers only the last watch of a field by each client.
func newHistories(e *engine, n *node, list []field.Reading, columns []collector.Column, o Options) (part, error) {
	h := &histories{engine: e, events: make([]event, historyRoom)}
	h.cost.Call = "dcgmGetValuesSince_v2"
	type column struct {
		device int
		field  field.ID
	}
	has := map[column]bool{}
	for _, c := range columns {
		has[column{c.Device, c.Field}] = true
	}
	now := time.Now().UnixMicro()
	for _, r := range list {
		var devices []int
		for _, d := range n.byKind(kindGPU) {
			if r.Histogram && polled(r.Desc.ID) && has[column{d, r.Desc.ID}] {
				devices = append(devices, d)
			}
		}
		if len(devices) == 0 {
			continue
		}
		b := newBlock(n, kindGPU, max(o.every(r), slowest[r.Desc.ID]), devices, []uint16{uint16(r.Desc.ID)})
		b.keep = historyKeep
		switch err := b.watch(e, refusals{}); {
		case severed(err):
			return nil, fmt.Errorf("watch field %d for a histogram: %w", r.Desc.ID, err)
		case err != nil || len(b.fields) == 0:
			continue // the histogram uses polled values
		}
		one := &history{block: b}
		for _, d := range devices {
			buffer := collector.NewBuffer(historyPace, r.Interval)
			buffer.Start(now)
			one.fetched, one.buffers, one.columns = append(one.fetched, now), append(one.buffers, buffer), append(one.columns, len(h.cols))
			h.cols = buffer.AppendColumns(h.cols, d, r.Desc.ID)
		}
		h.all = append(h.all, one)
	}
	if len(h.all) == 0 {
		return nil, nil //nolint:nilnil // no part, no error
	}
	return h, nil
}

func (h *histories) sample(row []float64, due []bool) error {
	for _, one := range h.all {
		if !slices.ContainsFunc(one.columns, func(c int) bool { return due[c] }) {
			continue
		}
		start := time.Now()
		count, err := h.engine.since(one.block, one.fetched, h.events)
		h.cost.Record(1, start)
		switch {
		case severed(err):
			return fmt.Errorf("read values since the last row: %w", err)
		case err != nil:
			count = 0 // the histogram uses polled values
		}
		for i := range h.events[:count] {
			one.addValue(&h.events[i])
		}
		for i, b := range one.buffers {
			if at := one.columns[i]; due[at] {
				b.Put(row[at:][:b.Width()])
			}
		}
	}
	return nil
}

// addValue adds a value to its GPU's buffer.
func (one *history) addValue(e *event) {
	one.fetched[e.of] = max(one.fetched[e.of], e.micros)
	if e.status != statusOK {
		e.value = math.NaN()
	}
	one.buffers[e.of].Add(e.micros, e.value)
}
