//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
)

// TestBlanked: a GPU that has only blanks where it had values is lost; one that never
// had any, that lacks a few or whose profiling is paused is not.
func TestBlanked(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 3})
	blank := dcgmtest.Blank(dcgmtest.NotFound)
	fields := []int{150, 155, 252, 251, 203}
	for _, f := range fields {
		e.Set(dcgmtest.GPU(2), f, blank)
	}
	c := open1(t, remote(e), "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE")
	e.Set(dcgmtest.GPU(2), 1002, blank)
	want := func(what string, lost bool) {
		t.Helper()
		err := c.sample(0)
		var one *collector.DeviceError
		switch {
		case !lost && err != nil:
			t.Errorf("%s: %v", what, err)
		case lost && (!errors.As(err, &one) || one.Device != 1 || !errors.Is(err, collector.ErrDeviceLost)):
			t.Errorf("%s: %v, want that device 1 is lost", what, err)
		}
	}
	want("GPU 2 has no values from the start", false)
	e.Set(dcgmtest.GPU(1), 1002, dcgmtest.Status(-54))
	want("profiling of GPU 1 is paused", false)
	for _, f := range fields[:4] {
		e.Set(dcgmtest.GPU(1), f, blank)
	}
	want("GPU 1 has one value", false)
	for _, f := range fields[:3] {
		e.Unset(dcgmtest.GPU(1), f)
	}
	want("GPU 1 has most of its values", false)
	for _, f := range fields[1:] {
		e.Set(dcgmtest.GPU(1), f, blank)
	}
	want("GPU 1 has one value left", false)
	e.Set(dcgmtest.GPU(1), fields[0], blank)
	want("GPU 1 has none", true)
	e.Unset(dcgmtest.GPU(1), 150)
	want("GPU 1 is back", false)
}

// TestBlankedOverBlocks: a block that is read seldom keeps the values of before while the
// others are blank already, and what was not read for that long says nothing.
func TestBlankedOverBlocks(t *testing.T) {
	const second = int64(time.Second / time.Microsecond)
	fast := &block{fields: []uint16{150, 155, 252}, maxValues: []int{0}}
	slow := &block{fields: []uint16{230, 391}, maxValues: []int{0}}
	read := func(fastValues int, fastAt int64, slowValues int, slowAt int64) bool {
		var h blanked
		h.addBlock(fast, 0, fastValues, 3-fastValues, fastAt)
		h.addBlock(slow, 0, slowValues, 2-slowValues, slowAt)
		return h.all(2 * time.Second)
	}
	const begin = int64(1000) * 1_000_000
	for _, tt := range []struct {
		what       string
		fast       int
		fastAt     int64
		slow       int
		slowAt     int64
		wantSilent bool
	}{
		{"all there", 3, begin, 2, begin, false},
		{"one blank", 2, begin + 1*second, 2, begin, false},
		{"the fast ones blank, the slow ones as old", 0, begin + 2*second, 2, begin, false},
		{"the fast ones blank, the slow ones older than that", 0, begin + 3*second, 2, begin, true},
		{"the fast ones back", 1, begin + 4*second, 2, begin, false},
		{"the fast ones blank, the slow ones read since", 0, begin + 5*second, 2, begin + 5*second, false},
		{"all blank", 0, begin + 6*second, 0, begin + 6*second, true},
	} {
		if got := read(tt.fast, tt.fastAt, tt.slow, tt.slowAt); got != tt.wantSilent {
			t.Errorf("%s: fell silent = %v, want %v", tt.what, got, tt.wantSilent)
		}
	}
}

// polls is a model of a host engine that reads blocks of GPUs: cells get a time stamp when
// the engine reads them, by its own clock.
type polls struct {
	*readings
	begin time.Time
	at    time.Duration // since begin
	row   []float64
	due   []bool
}

// newPolls makes a source of GPUs with blocks of so many fields at intervals.
func newPolls(gpus int, blocks map[time.Duration][]uint16) *polls {
	n := &node{}
	for g := range gpus {
		n.addDevice(collector.Device{ID: fmt.Sprint(g)}, entity{kindGPU, uint32(g)})
	}
	p := &polls{begin: time.Unix(1_000_000, 0), readings: &readings{node: n}}
	p.now = func() time.Time { return p.begin.Add(p.at) }
	for every, fields := range blocks {
		b := newBlock(n, kindGPU, every, n.byKind(kindGPU), fields)
		b.divide(valuesPerCall)
		b.column = len(p.row)
		p.row, p.due = append(p.row, make([]float64, len(b.cells))...), append(p.due, slices.Repeat([]bool{true}, len(b.cells))...)
		p.blocks = append(p.blocks, b)
	}
	p.prepare()
	return p
}

// set is the engine's read of a field of a GPU, by a clock that is ahead by skew.
func (p *polls) set(gpu int, id uint16, skew time.Duration) {
	for _, b := range p.blocks {
		if i := slices.Index(b.fields, id); i >= 0 {
			b.cells[gpu*len(b.fields)+i] = cell{value: float64(id), micros: p.now().Add(skew).UnixMicro()}
		}
	}
}

// tick takes what the engine has, and judges.
func (p *polls) tick() error {
	for i := range p.devices {
		p.devices[i].due, p.devices[i].lost, p.devices[i].blanked = false, false, blanked{}
	}
	for _, b := range p.blocks {
		p.look(b, p.now())
	}
	err := p.deviceErrors(p.now())
	for _, b := range p.blocks {
		p.copyCells(b, p.row, p.due)
	}
	return err
}

// value is the cell of a field of a GPU in the row.
func (p *polls) value(gpu int, id uint16) float64 {
	for _, b := range p.blocks {
		if i := slices.Index(b.fields, id); i >= 0 {
			return p.row[b.column+gpu*len(b.fields)+i]
		}
	}
	return math.NaN()
}

// age is that of the values of a GPU.
func (p *polls) age(gpu int) time.Duration { return p.now().Sub(time.UnixMicro(p.devices[gpu].dated)) }

const (
	temp, watts, joules, ecc, count = 150, 155, 156, 311, 4 // count is the node's
)

// TestSomeCallsFail: of a GPU of which only some calls of the driver fail, what those would
// have read leaves the page after its patience, and the rest stays; the age is that of the
// oldest value that is shown. The other GPU has everything.
func TestSomeCallsFail(t *testing.T) {
	p := newPolls(2, map[time.Duration][]uint16{time.Second: {temp, watts, joules}, 30 * time.Second: {ecc}})
	for second := range 130 {
		p.at = time.Duration(second) * time.Second
		for gpu := range 2 {
			for _, id := range []uint16{temp, watts, joules} {
				if gpu == 1 && id == joules && second > 10 {
					continue // nvmlDeviceGetFieldValues fails
				}
				p.set(gpu, id, 0)
			}
			if second%30 == 0 {
				p.set(gpu, ecc, 0)
			}
		}
		p.at += 300 * time.Millisecond // between two polls
		if err := p.tick(); err != nil {
			t.Fatalf("second %d: %v", second, err)
		}
		gone := second > 14
		for gpu := range 2 {
			if got := math.IsNaN(p.value(gpu, joules)); got != (gone && gpu == 1) {
				t.Errorf("second %d: energy of GPU %d is blank: %v", second, gpu, got)
			}
			for _, id := range []uint16{temp, watts, ecc} {
				if math.IsNaN(p.value(gpu, id)) {
					t.Errorf("second %d: field %d of GPU %d is blank", second, id, gpu)
				}
			}
		}
		want := 300 * time.Millisecond
		if second > 10 && !gone {
			want += time.Duration(second-10) * time.Second
		}
		if got := p.age(1); got != want {
			t.Errorf("second %d: age of GPU 1 is %v, want %v", second, got, want)
		}
		if got := p.age(0); got != 300*time.Millisecond {
			t.Errorf("second %d: age of GPU 0 is %v", second, got)
		}
	}
}

// TestSlowCalls: a GPU whose calls take 200 ms makes a poll of all eight take 7.4 s. None is
// shown as fresh: the values stay while their age grows, and one poll does not bring the GPUs back.
func TestSlowCalls(t *testing.T) {
	p := newPolls(8, map[time.Duration][]uint16{time.Second: {temp, watts}})
	const poll = 7400 * time.Millisecond
	next, last := time.Duration(0), time.Duration(0)
	for p.at = 0; p.at < time.Minute; p.at += 100 * time.Millisecond {
		if p.at >= next {
			for gpu := range 8 {
				p.set(gpu, temp, 0)
				p.set(gpu, watts, 0)
			}
			next, last = p.at+poll, p.at
		}
		err := p.tick()
		stale := p.at > 4*time.Second
		for gpu := range 8 {
			switch {
			case stale != errors.Is(deviceError(err, gpu), collector.ErrStalled):
				t.Fatalf("at %v: GPU %d: %v, want stalled: %v", p.at, gpu, err, stale)
			case math.IsNaN(p.value(gpu, temp)):
				t.Fatalf("at %v: GPU %d has no temperature", p.at, gpu)
			case !stale && p.age(gpu) != p.at-last:
				t.Fatalf("at %v: age of GPU %d is %v, want %v", p.at, gpu, p.age(gpu), p.at-last)
			}
		}
	}
	for range 30 { // polls are fast again
		p.at += 100 * time.Millisecond
		for gpu := range 8 {
			p.set(gpu, temp, 0)
			p.set(gpu, watts, 0)
		}
		if err := p.tick(); err == nil && !math.IsNaN(p.value(3, temp)) {
			return
		}
	}
	t.Error("still stalled after 3 s of fast polls")
}

// TestBlockStops: a field group that the engine reads no more leaves the page, and the
// others stay, also if it is the one that is read most often.
func TestBlockStops(t *testing.T) {
	p := newPolls(1, map[time.Duration][]uint16{100 * time.Millisecond: {temp}, time.Second: {watts}})
	for p.at = 0; p.at < 20*time.Second; p.at += 100 * time.Millisecond {
		if p.at <= 5*time.Second {
			p.set(0, temp, 0)
		}
		if p.at%time.Second == 0 {
			p.set(0, watts, 0)
		}
		err := p.tick()
		// 3 s later the temperature is gone, and a read of the power later it is sure that the GPU is read.
		if unsure := p.at > 8*time.Second && p.at < 9*time.Second; (err != nil) != unsure {
			t.Errorf("at %v: %v", p.at, err)
		}
		if gone := p.at > 8*time.Second; gone != math.IsNaN(p.value(0, temp)) || math.IsNaN(p.value(0, watts)) {
			t.Errorf("at %v: temperature %v, power %v", p.at, p.value(0, temp), p.value(0, watts))
		}
	}
}

// TestNodeFieldIsNoLife: time stamps of a field of the node do not keep a GPU fresh.
func TestNodeFieldIsNoLife(t *testing.T) {
	p := newPolls(1, map[time.Duration][]uint16{time.Second: {temp, count}})
	for p.at = 0; p.at < 10*time.Second; p.at += time.Second {
		p.set(0, count, 0)
		if p.at < 2*time.Second {
			p.set(0, temp, 0)
		}
		if err := p.tick(); (err != nil) != (p.at > 5*time.Second) {
			t.Errorf("at %v: %v", p.at, err)
		}
	}
	p = newPolls(1, map[time.Duration][]uint16{time.Second: {count}}) // and of a GPU of which nothing else is read
	for p.at = 0; p.at < 10*time.Second; p.at += time.Second {
		p.set(0, count, 0)
		if err := p.tick(); err != nil {
			t.Errorf("at %v: %v", p.at, err)
		}
	}
}

// TestClockOfEngine: the clock of an engine on another machine says nothing of the age.
func TestClockOfEngine(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		p := newPolls(1, map[time.Duration][]uint16{time.Second: {temp}})
		for p.at = time.Second; p.at < 10*time.Second; p.at += time.Second {
			p.set(0, temp, skew)
			err := p.tick()
			if got := p.age(0); err != nil || p.at > time.Second && got > time.Second {
				t.Errorf("clock off by %v, at %v: age %v, %v", skew, p.at, got, err)
			}
		}
	}
}

// TestSeen: a value that was gone is back when it has moved all through half of its
// patience. One poll now and then does not bring it back.
func TestSeen(t *testing.T) {
	var s seen
	r := reading{now: 1, patience: patience(time.Second).Microseconds()} // 4 s
	step := func(seconds float64, moved, wantGone bool) {
		t.Helper()
		r.now += int64(seconds * 1e6)
		stamp := s.micros
		if moved {
			stamp = r.now
		}
		if s.see(stamp, &r); (s.gone || s.micros == 0) != wantGone {
			t.Errorf("after %v s: gone %v, want %v", float64(r.now)/1e6, s.gone, wantGone)
		}
	}
	step(1, false, true) // nothing yet
	step(9, false, true)
	step(1, true, false) // the first poll was slow
	for range 3 {
		step(1, true, false)
	}
	step(4, false, false)
	step(1, false, true)
	for range 3 { // a GPU that takes 10 s for a poll
		step(9, false, true)
		step(1, true, true)
	}
	step(1, true, true)
	step(1, true, false)
	step(1, true, false)
	step(5, false, true)
	step(30, true, true) // sampled seldom while it fails
	step(30, true, false)
}
