//go:build linux && cgo

package nvml

import (
	"math"
	"strconv"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Event columns of a device: how many XIDs of one tick a row can tell of. More
// wait for the next tick.
const (
	slotsOfBoard    = 4
	slotsOfInstance = 2
)

// placement says which device of a source an event concerns.
type placement struct{ instances []instanceID }

// instanceID is a MIG instance by NVML's ids, and its index in the devices.
type instanceID struct {
	gi, ci uint32
	device int
}

// device returns the index of the device: the instance with both ids, else one of
// the same GPU instance, as dcgm-exporter has GPU instances only, else the GPU.
func (p *placement) device(gi, ci uint32) int {
	found := 0
	for _, in := range p.instances {
		switch {
		case in.gi != gi || gi == noInstance:
		case in.ci == ci:
			return in.device
		case found == 0:
			found = in.device
		}
	}
	return found
}

// eventsPart supplies DCGM_FI_DEV_XID_ERRORS, the last XID, blank until there was
// one, and the event columns behind DCGM_EXP_XID_ERRORS_*. It asks for a new Open
// when the driver says that MIG was configured anew. Its calls into the library
// are on the goroutine of its board; sample makes none. It is a lastPart: the XID
// of a GPU that is lost comes with the failure, and what were written into a row
// whose other calls hang might never be read.
type eventsPart struct {
	board  *board
	boards *boards
	log    *zap.Logger
	place  placement
	reader logReader

	cols   []collector.Column
	latest []int   // columns of XIDErrors
	slots  [][]int // event columns by device
	used   []int   // by device, of the row in hand

	codes []float64 // the last XID by device
	seen  uint64    // tail of the log when codes was made
	lost  uint64    // events that were said to be lost
}

var _ lastPart = (*eventsPart)(nil)

// newEventsPart makes the part of a GPU whose events board hears. devices is how
// many devices the source has, place which of them are instances.
func newEventsPart(b *boards, x *board, devices int, place placement, fields []field.Reading, log *zap.Logger) *eventsPart {
	p := &eventsPart{
		board: x, boards: b, log: log, place: place, reader: x.reader(),
		slots: make([][]int, devices), used: make([]int, devices), codes: make([]float64, devices),
		seen: math.MaxUint64,
	}
	for _, r := range fields {
		for d := range devices {
			if d > 0 && !place.has(d) {
				continue
			}
			switch r.Desc.ID {
			case field.XIDErrors:
				p.latest = append(p.latest, p.add(d, r.Desc.ID))
			case field.XIDEvent:
				n := slotsOfBoard
				if d > 0 {
					n = slotsOfInstance
				}
				for i := range n {
					p.slots[d] = append(p.slots[d], p.add(d, r.Desc.ID, collector.Label{Name: "slot", Value: strconv.Itoa(i)}))
				}
			}
		}
	}
	return p
}

func (p *placement) has(device int) bool {
	for _, in := range p.instances {
		if in.device == device {
			return true
		}
	}
	return false
}

func (p *eventsPart) add(device int, id field.ID, labels ...collector.Label) int {
	p.cols = append(p.cols, collector.Column{Device: device, Field: id, Labels: labels})
	return len(p.cols) - 1
}

func (p *eventsPart) columns() []collector.Column { return p.cols }

func (p *eventsPart) sample(row []float64, due []bool) error {
	p.fillLatest(row, due)
	if p.reader.next != p.board.tail.Load() {
		p.fillEvents(row, due)
	}
	if p.reader.reconfigured() {
		return collector.ErrColumnsChanged
	}
	return nil
}

// fillLatest writes the last XIDs. While nobody listens there may be newer ones.
func (p *eventsPart) fillLatest(row []float64, due []bool) {
	if len(p.latest) == 0 {
		return
	}
	if tail := p.board.tail.Load(); tail != p.seen {
		for i := range p.codes {
			p.codes[i] = math.NaN()
		}
		p.board.newest(p.codes, &p.place)
		p.seen = tail
	}
	heard := p.board.heard.Load()
	for _, i := range p.latest {
		switch {
		case !due[i]:
		case heard:
			row[i] = p.codes[p.cols[i].Device]
		default:
			row[i] = math.NaN()
		}
	}
}

// fillEvents writes XIDs that no row has told of, in order, until one finds no
// free cell that is due.
func (p *eventsPart) fillEvents(row []float64, due []bool) {
	clear(p.used)
	for {
		e, ok := p.reader.peek()
		if !ok {
			break
		}
		if d := p.place.device(e.gi, e.ci); len(p.slots[d]) > 0 {
			i, free := p.slot(d, due)
			if !free {
				break
			}
			row[i] = float64(e.code)
		}
		p.reader.told()
	}
	if p.reader.lost > p.lost {
		p.log.Warn("XIDs came faster than rows can tell of them, some are not counted", zap.Uint64("lost", p.reader.lost-p.lost))
		p.lost = p.reader.lost
	}
}

func (p *eventsPart) slot(device int, due []bool) (cell int, ok bool) {
	slots := p.slots[device]
	if p.used[device] == len(slots) || !due[slots[p.used[device]]] {
		return 0, false
	}
	p.used[device]++
	return slots[p.used[device]-1], true
}

// calls is empty: the goroutine that listens makes them, a few a second.
func (p *eventsPart) calls() []collector.CallCost { return nil }

func (*eventsPart) last() {}

func (p *eventsPart) close() { p.boards.leave(p.board) }
