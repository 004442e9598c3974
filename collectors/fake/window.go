package fake

import (
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// window is how a driver averages a reading that follows the load: the mean over span µs, updated each period. The zero
// window is momentary.
type window struct {
	span   int64 // sinceRead: the time since the reading was read last
	period int64 // 0: at any time
	read   int64 // time of the last read, for sinceRead
}

const (
	sinceRead = -1
	ms        = int64(time.Millisecond / time.Microsecond)

	// Windows of NVIDIA's drivers, from pkg/field/window.go and the sample buffers of nvidia-smi -q. The averaging time of
	// a buffered power sample is not documented; here it is the time since the previous sample.
	utilisationPeriod   = 1000 * ms / 6
	powerPeriod         = 20 * ms
	bufferedUtilisation = 100 // samples in the driver's buffer
	bufferedPower       = 120
)

// windowOf returns how the board's driver averages a reading.
func (g *gpu) windowOf(id field.ID) window {
	switch {
	case g.vendor == field.VendorAMD && id == 155:
		return window{span: 100 * ms}
	case id >= 1001 && id <= 1083: // profiling
		return window{span: sinceRead}
	case g.vendor == field.VendorAMD:
		return window{}
	case id == 155 && g.averagesPower():
		return window{span: 1000 * ms}
	case id == 200 || id == 201:
		return window{span: 20 * ms}
	case id >= 203 && id <= 207:
		return window{span: utilisationPeriod, period: utilisationPeriod}
	}
	return window{}
}

// averagesPower reports whether the driver averages power: Ampere and newer except GA100, by compute capability.
func (g *gpu) averagesPower() bool {
	return g.capability[0] > 8 || g.capability[0] == 8 && g.capability[1] > 0
}

// bounds returns the times between which a reading is averaged that is read at now.
func (w *window) bounds(now int64) (from, to int64) {
	if w.span == sinceRead {
		if w.read == 0 {
			w.read = now
		}
		from, to = min(w.read, now-100*ms), now
		w.read = now
		return from, to
	}
	if w.period > 0 {
		now -= now % w.period
	}
	return now - w.span, now
}

// averaged returns a cell's point: the source's point, with the mean load and power over the cell's window if it has
// one. The result is valid until the next call.
func (s *source) averaged(c *cell, now int64) *point {
	p := &s.points[c.unit]
	if c.span == 0 {
		return p
	}
	from, to := c.bounds(now)
	s.mean = *p
	s.mean.load, s.mean.power = s.means(int(c.unit), from, to)
	return &s.mean
}

// means returns the mean load and power of a unit.
func (s *source) means(unit int, from, to int64) (load, power float64) {
	if unit == 0 && s.shares != nil {
		for i, share := range s.shares {
			l, p := s.means(i+1, from, to)
			load, power = load+share*l, power+share*p
		}
		return load, power
	}
	l := &s.loads[unit]
	from, to = max(from+l.offset, 0), to+l.offset
	loadBefore, powerBefore := l.curve.sums(from)
	loadAfter, powerAfter := l.curve.sums(to)
	span := float64(to-from) * full
	return float64(loadAfter-loadBefore) / span, float64(powerAfter-powerBefore) / span
}

// buffer is a board driver's sample buffer of one reading.
type buffer struct {
	*collector.Buffer
	cell   cell // its window sets the sampling period
	keeps  int64
	column int // first column of its block
}

// bufferOf returns the buffer of a reading, nil if the driver has none.
func (g *gpu) bufferOf(r field.Reading, c cell) *buffer {
	if g.vendor != field.VendorNVIDIA || !r.Histogram {
		return nil
	}
	b := &buffer{cell: c}
	switch id := r.Desc.ID; {
	case id == 155:
		b.cell.window, b.keeps = window{span: powerPeriod, period: powerPeriod}, bufferedPower
	case id >= 203 && id <= 207:
		b.keeps = bufferedUtilisation
	default:
		return nil
	}
	b.Buffer = collector.NewBuffer(float64(1000*ms)/float64(b.cell.period), r.Interval)
	return b
}

// buffers adds blocks for the histograms of a board.
func (b *builder) buffers(s *source, g *gpu) {
	for _, r := range b.readings {
		for i := range s.columns {
			c := &s.columns[i]
			if c.Device != 0 || c.Field != r.Desc.ID || len(c.Labels) > 0 || c.Buffer > 0 {
				continue
			}
			if kept := g.bufferOf(r, s.cells[i]); kept != nil {
				kept.column = len(s.columns)
				kept.Start(b.world.uptime(b.elapsed).Microseconds() / kept.cell.period * kept.cell.period)
				s.columns = kept.AppendColumns(s.columns, 0, r.Desc.ID)
				for range kept.Width() {
					s.cells = append(s.cells, cell{op: buffered})
				}
				s.kept = append(s.kept, kept)
			}
			break
		}
	}
}

// fillBuffers writes the samples since the last row into the due blocks.
func (s *source) fillBuffers(row []float64, due []bool, now int64, up float64) {
	for _, b := range s.kept {
		if !due[b.column] {
			continue
		}
		step := b.cell.period
		for at := max(b.Last(), now-b.keeps*step)/step*step + step; at <= now; at += step {
			b.Add(at, b.cell.eval(s.averaged(&b.cell, at), up))
		}
		b.Put(row[b.column:][:b.Width()])
	}
}
