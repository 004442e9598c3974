package fake

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// load is the load of one unit (a board, an instance, a switch, a core): a shape's curve at the unit's own offset.
type load struct {
	curve  *curve
	offset int64 // µs
}

// source is one GPU with its instances and links, one NVSwitch with its ports, or one CPU with its cores.
type source struct {
	world    *World
	closed   *atomic.Bool // the collector's
	gpu      int          // index, or −1
	nvswitch int          // index, or −1

	devices []collector.Device
	columns []collector.Column
	cells   []cell // cells[i] computes columns[i]
	blank   float64
	collector.Absences

	loads  []load    // by unit
	shares []float64 // shares of units 1… in unit 0; nil if unit 0 has its own load
	points []point   // by unit, for the current sample
	mean   point     // see averaged

	xids     xids
	xidsSeen int64           // number of natural XIDs reported
	reported map[*fault]bool // XIDs of faults

	watchesHealth bool
	health        uint64 // healthSum at Open
}

var (
	_ collector.Source    = (*source)(nil)
	_ collector.Explainer = (*source)(nil)
)

var (
	errClosed = errors.New("sample simulated device: the collector is closed")
	errShape  = errors.New("sample simulated device: row and due need one cell per column")
)

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

// Sample computes the due cells at the world's time. It blocks during a fault of kind Hang.
func (s *source) Sample(row []float64, due []bool) error {
	elapsed, err := s.begin(row, due)
	if err != nil {
		return err
	}
	s.fill(row, due, elapsed)
	s.twist(row, due, elapsed)
	return nil
}

// begin applies the faults that affect whole samples and returns the sample's time.
func (s *source) begin(row []float64, due []bool) (time.Duration, error) {
	if len(row) != len(s.columns) || len(due) != len(s.columns) {
		return 0, errShape
	}
	if s.closed.Load() {
		return 0, errClosed
	}
	if s.cells != nil { // not a processSource, which uses another library
		s.world.suffer(s.world.elapsed())
	}
	if err := s.wait(); err != nil {
		return 0, err
	}
	elapsed := s.world.elapsed()
	return elapsed, s.broken(elapsed)
}

// concerned reports whether a fault affects this source.
func (s *source) concerned(f *fault) bool {
	return s.gpu >= 0 && f.GPUs.contain(s.gpu) || s.nvswitch >= 0 && f.Switches.contain(s.nvswitch)
}

// naturalXIDs are XIDs of application errors and of a row remap. They do not make the faulty board unhealthy.
var naturalXIDs = [...]float64{13, 31, 43, 45, 63, 68}

// xidEvery is the time between two natural XIDs.
const xidEvery = 17 * 60.0

// xids computes a board's natural XIDs.
type xids struct {
	seed   uint64
	offset float64 // s
	on     bool
}

// number returns how many XIDs occurred, up seconds after the driver was loaded.
func (x *xids) number(up float64) int64 {
	if !x.on {
		return 0
	}
	return int64((up + x.offset) / xidEvery)
}

func (x *xids) code(number int64) float64 {
	if number == 0 {
		return 0
	}
	return naturalXIDs[hash(x.seed, forXID, uint64(number))%uint64(len(naturalXIDs))]
}

// wait blocks while the device hangs or is slow.
func (s *source) wait() error {
	for _, f := range *s.world.faults.Load() {
		if f.Kind == Spin && s.concerned(f) {
			s.world.spin(f)
		}
		if f.Kind == Hang && s.concerned(f) && (f.Field == nil || slices.ContainsFunc(s.columns, func(c collector.Column) bool { return c.Field == f.Field.ID })) {
			if err := s.world.suspend(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// Probe implements collector.Prober.
func (s *source) Probe(string) bool {
	return !slices.ContainsFunc(*s.world.faults.Load(), func(f *fault) bool {
		return (f.Kind == Hang || f.Kind == Spin) && f.Field == nil && s.concerned(f) && f.active(s.world.elapsed())
	})
}

// broken returns the error of the first fault that makes Sample fail.
func (s *source) broken(elapsed time.Duration) error {
	if s.gpu >= 0 && s.gpu >= s.world.count(elapsed) {
		return collector.ErrColumnsChanged
	}
	for _, f := range *s.world.faults.Load() {
		if (f.Kind == Lost || f.Kind == Stalled || f.Kind == Fails) && s.concerned(f) && f.active(elapsed) {
			return f.err
		}
	}
	if s.watchesHealth && s.healthSum(elapsed) != s.health {
		return collector.ErrColumnsChanged
	}
	return nil
}

// fill computes the points once and then each due cell.
func (s *source) fill(row []float64, due []bool, elapsed time.Duration) {
	micros := s.world.uptime(elapsed).Microseconds()
	up := float64(micros) / 1e6
	for i := range s.loads {
		if l := &s.loads[i]; l.curve != nil {
			s.points[i] = l.curve.at(micros + l.offset)
		}
	}
	if s.shares != nil {
		s.points[0] = point{}
		for i, share := range s.shares {
			s.points[0].addShare(s.points[i+1], share)
		}
	}
	for i := range s.cells {
		if !due[i] {
			continue
		}
		switch c := &s.cells[i]; c.op {
		case lastXID:
			row[i] = s.lastXID(up, elapsed)
		case xidEvent:
			row[i] = s.nextXID(up, elapsed)
		default:
			row[i] = c.eval(s.averaged(c, micros), up)
		}
	}
}

// twist applies the faults that falsify readings.
func (s *source) twist(row []float64, due []bool, elapsed time.Duration) {
	for _, f := range *s.world.faults.Load() {
		if f.Kind != Absurd && f.Kind != Blank || !s.concerned(f) || !f.active(elapsed) {
			continue
		}
		v := f.Value + f.Rise*s.world.uptime(elapsed).Seconds()
		if f.Kind == Blank {
			v = s.blank
		}
		for i := range row {
			labelled := f.Label.Name == "" || slices.Contains(s.columns[i].Labels, f.Label)
			if due[i] && labelled && (f.Field == nil || s.columns[i].Field == f.Field.ID) {
				row[i] = v
			}
		}
	}
}

// nextXID returns the next unreported XID, one per call, or NaN.
func (s *source) nextXID(up float64, elapsed time.Duration) float64 {
	for _, f := range *s.world.faults.Load() {
		if f.Kind == XID && s.concerned(f) && f.begun(elapsed) && !s.reported[f] {
			s.reported[f] = true
			return float64(f.XID)
		}
	}
	if n := s.xids.number(up); n > s.xidsSeen {
		s.xidsSeen = n
		return s.xids.code(n)
	}
	return math.NaN()
}

// lastXID returns the newest XID, or 0 before the first.
func (s *source) lastXID(up float64, elapsed time.Duration) float64 {
	n := s.xids.number(up)
	code, since := s.xids.code(n), float64(n)*xidEvery-s.xids.offset
	for _, f := range *s.world.faults.Load() {
		if f.Kind != XID || !s.concerned(f) || !f.begun(elapsed) {
			continue
		}
		begin, _ := f.begin()
		if at := s.world.uptime(begin).Seconds(); at >= since {
			code, since = float64(f.XID), at
		}
	}
	return code
}

// addColumn appends a column of a device, computed from a unit's point.
func (s *source) addColumn(d *field.Descriptor, device, unit int, c cell, labels ...collector.Label) {
	s.columns = append(s.columns, collector.Column{Device: device, Field: d.ID, Labels: labels})
	s.cells = append(s.cells, finish(c, d, unit))
}

// bind appends a column for each reading that the device has.
func (s *source) bind(readings []field.Reading, device, unit int, b binder) {
	for _, r := range readings {
		if c, ok := bind(b, r.Desc); ok {
			if g, is := b.(*gpu); is && (c.op == byLoad || c.op == byPower) {
				c.window = g.windowOf(r.Desc.ID)
			}
			s.addColumn(r.Desc, device, unit, c)
		}
	}
}
