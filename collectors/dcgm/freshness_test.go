//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
)

// TestBlanked checks that a GPU is lost if all its values have become blank, and not lost if it never had values, lacks a
// few, or has its profiling paused.
func TestBlanked(t *testing.T) {
	e := dcgmtest.New(t, dcgmtest.Config{GPUs: 3})
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
	for _, f := range fields[1:] {
		e.Set(dcgmtest.GPU(1), f, blank)
	}
	want("GPU 1 has one value left", false)
	e.Set(dcgmtest.GPU(1), fields[0], blank)
	want("GPU 1 has none", true)
	e.Unset(dcgmtest.GPU(1), 150)
	want("GPU 1 is back", false)
}

// polls is a model of a host engine that reads blocks of GPUs. It stamps cells with the engine's clock when it reads them.
type polls struct {
	*readings
	begin time.Time
	at    time.Duration // since begin
	late  time.Duration // of a sample after the engine's read
	skew  time.Duration // of the engine's clock
	row   []float64
	due   []bool
}

// newPolls returns a source of GPUs with blocks of fields, by interval.
func newPolls(gpus int, blocks map[time.Duration][]uint16) *polls {
	n := &node{}
	for g := range gpus {
		n.addDevice(collector.Device{ID: fmt.Sprint(g)}, entity{kindGPU, uint32(g)})
	}
	p := &polls{begin: time.Unix(1_000_000, 0), readings: &readings{node: n}}
	p.now = func() time.Time { return p.begin.Add(p.at) }
	for _, every := range slices.Sorted(maps.Keys(blocks)) { // in the order of blocksOf
		b := newBlock(n, kindGPU, every, n.byKind(kindGPU), blocks[every])
		newBatch(valuesPerCall, b)
		b.column = len(p.row)
		p.row, p.due = append(p.row, make([]float64, len(b.cells))...), append(p.due, slices.Repeat([]bool{true}, len(b.cells))...)
		p.blocks = append(p.blocks, b)
	}
	p.prepare()
	return p
}

// reads returns the engine's value of a GPU's field, or false if the engine does not read it now.
type reads func(gpu int, id uint16) (value float64, read bool)

// run advances the time in steps. In each step the engine reads, then the source is sampled and checked.
func (p *polls) run(step, end time.Duration, read reads, check func(err error)) {
	for ; p.at < end; p.at += step {
		for _, b := range p.blocks {
			for i := range b.cells {
				if v, is := read(i/len(b.fields), b.fields[i%len(b.fields)]); is {
					b.cells[i] = cell{value: v, micros: p.now().Add(p.skew).UnixMicro()}
				}
			}
		}
		p.at += p.late
		check(p.tick())
		p.at -= p.late
	}
}

// tick samples the engine's values and returns the source's error.
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

// blank reports whether a field of a GPU has no value in the row.
func (p *polls) blank(gpu int, id uint16) bool {
	for _, b := range p.blocks {
		if i := slices.Index(b.fields, id); i >= 0 {
			return math.IsNaN(p.row[b.column+gpu*len(b.fields)+i])
		}
	}
	return true
}

// age returns the age of a GPU's values.
func (p *polls) age(gpu int) time.Duration { return p.now().Sub(time.UnixMicro(p.devices[gpu].dated)) }

const (
	temp, watts, joules, ecc, count = 150, 155, 156, 311, 4 // count is a field of the node
	sec                             = time.Second
)

// TestBlankedOverBlocks checks that old values of a slow block do not hide the loss of a GPU whose other values are blank.
func TestBlankedOverBlocks(t *testing.T) {
	p := newPolls(1, map[time.Duration][]uint16{sec: {temp, watts, joules}, 30 * sec: {ecc}})
	p.run(sec, 90*sec, func(_ int, id uint16) (float64, bool) {
		if p.at > 30*sec && p.at < 70*sec {
			return math.NaN(), id != ecc || p.at%(30*sec) == 0
		}
		return 1, id != ecc || p.at%(30*sec) == 0
	}, func(err error) {
		lost := p.at > 32*sec && p.at < 70*sec
		testkit.ErrorIf(t, errors.Is(err, collector.ErrDeviceLost) != lost || !lost && err != nil, "at %v: %v, want lost: %v", p.at, err, lost)
	})
}

// TestSomeCallsFail checks a GPU with some failing driver calls. Their values become blank after their patience, and
// the rest stays. The age follows the oldest value shown. The other GPU keeps all values.
func TestSomeCallsFail(t *testing.T) {
	p := newPolls(2, map[time.Duration][]uint16{sec: {temp, watts, joules}, 30 * sec: {ecc}})
	p.late = 300 * time.Millisecond // between two polls
	p.run(sec, 130*sec, func(gpu int, id uint16) (float64, bool) {
		fails := gpu == 1 && id == joules && p.at > 10*sec // nvmlDeviceGetFieldValues
		return float64(id), !fails && (id != ecc || p.at%(30*sec) == 0)
	}, func(err error) {
		at := p.at - p.late
		if gone := at > 14*sec; err != nil || p.blank(1, joules) != gone || p.blank(0, joules) {
			t.Errorf("at %v: energy is blank: %v and %v; %v", at, p.blank(0, joules), p.blank(1, joules), err)
		}
		for i := range 2 * 3 {
			gpu, id := i%2, []uint16{temp, watts, ecc}[i/2]
			testkit.ErrorIf(t, p.blank(gpu, id), "at %v: field %d of GPU %d is blank", at, id, gpu)
		}
		want := p.late
		if at > 10*sec && at <= 14*sec {
			want += at - 10*sec
		}
		a, b := p.age(0), p.age(1)
		testkit.ErrorIf(t, a != p.late || b != want, "at %v: ages are %v and %v, want %v and %v", at, a, b, p.late, want)
	})
}

// TestSlowCalls checks a GPU whose calls take 200 ms, so that a poll of all eight takes 7.4 s. No GPU looks fresh: the
// values stay while their age grows, and one poll does not bring the GPUs back.
func TestSlowCalls(t *testing.T) {
	p := newPolls(8, map[time.Duration][]uint16{sec: {temp, watts}})
	const poll, step = 7400 * time.Millisecond, 100 * time.Millisecond
	p.run(step, 60*sec, func(_ int, id uint16) (float64, bool) { return float64(id), p.at%poll == 0 }, func(err error) {
		stale := p.at > 4*sec
		for gpu := range 8 {
			switch {
			case stale != errors.Is(deviceError(err, gpu), collector.ErrStalled):
				t.Fatalf("at %v: GPU %d: %v, want stalled: %v", p.at, gpu, err, stale)
			case p.blank(gpu, temp):
				t.Fatalf("at %v: GPU %d has no temperature", p.at, gpu)
			case !stale && p.age(gpu) != p.at%poll:
				t.Fatalf("at %v: age of GPU %d is %v, want %v", p.at, gpu, p.age(gpu), p.at%poll)
			}
		}
	})
	var last error
	p.run(step, 63*sec, func(_ int, id uint16) (float64, bool) { return float64(id), true }, func(err error) { last = err })
	testkit.ErrorIf(t, last != nil || p.blank(3, temp), "still stalled after 3 s of fast polls: %v", last)
}

// TestHangMidPass checks that every value stays if the driver hangs in the middle of the engine's pass, so that some
// timestamps freeze one tick after the others, and if a pass takes longer than the patience.
func TestHangMidPass(t *testing.T) {
	const hang, pass = 10 * sec, 8 * sec
	fields := []uint16{temp, watts, joules, ecc}
	p := newPolls(1, map[time.Duration][]uint16{sec: fields})
	p.run(sec, 60*sec, func(_ int, id uint16) (float64, bool) {
		first := id == temp || id == watts
		if p.at > 30*sec {
			return float64(id), first && p.at%pass == 0 || !first && p.at%pass == pass/2
		}
		return float64(id), p.at < hang || first && p.at == hang
	}, func(err error) {
		stalled := p.at > hang+patience(sec)
		testkit.ErrorIf(t, p.at <= 30*sec && errors.Is(err, collector.ErrStalled) != stalled, "at %v: %v, want stalled: %v", p.at, err, stalled)
		for _, id := range fields {
			testkit.ErrorIf(t, p.blank(0, id), "at %v: field %d is blank", p.at, id)
		}
	})
}

// TestBlockStops checks that only the values of a block become blank when the engine stops reading it, even if it is the
// fastest block.
func TestBlockStops(t *testing.T) {
	p := newPolls(1, map[time.Duration][]uint16{100 * time.Millisecond: {temp}, sec: {watts}})
	p.run(100*time.Millisecond, 20*sec, func(_ int, id uint16) (float64, bool) {
		return float64(id), id == temp && p.at <= 5*sec || id == watts && p.at%sec == 0
	}, func(err error) {
		// 3 s later the temperature is gone. One read of the power after that, it is certain that the engine reads the GPU.
		testkit.Equal(t, fmt.Sprintf("at %v: %v", p.at, err), p.at > 8*sec && p.at < 9*sec, err != nil)
		if gone := p.at > 8*sec; gone != p.blank(0, temp) || p.blank(0, watts) {
			t.Errorf("at %v: blank temperature %v, power %v", p.at, p.blank(0, temp), p.blank(0, watts))
		}
	})
}

// TestNodeFieldIsNoLife checks that timestamps of a node field keep a GPU fresh only if it has no other fields, and that
// the age does not depend on the clock of the engine's machine.
func TestNodeFieldIsNoLife(t *testing.T) {
	for _, fields := range [][]uint16{{temp, count}, {count}} {
		for _, skew := range []time.Duration{-time.Hour, time.Hour} {
			p := newPolls(1, map[time.Duration][]uint16{sec: fields})
			p.skew, p.at = skew, sec
			p.run(sec, 10*sec, func(_ int, id uint16) (float64, bool) { return 1, id == count || p.at < 3*sec }, func(err error) {
				testkit.Equal(t, fmt.Sprintf("fields %v, at %v: %v", fields, p.at, err), p.at > 6*sec && len(fields) > 1, err != nil)
				testkit.ErrorIf(t, p.at > sec && p.at < 3*sec && p.age(0) > sec, "clock off by %v, at %v: age %v", skew, p.at, p.age(0))
			})
		}
	}
}

// TestKeeps: a blank among the values of a profiling field is not shown until the engine has read another, and the last value
// is too old.
func TestKeeps(t *testing.T) {
	for _, c := range []struct {
		id     uint16
		first  sentinel
		next   sentinel
		micros []int64 // of the next cells, after a first one at 100 s
		keeps  []bool
	}{
		{1001, noSentinel, sentinelBlank, []int64{101e6, 102e6, 103e6, 104e6}, []bool{true, true, true, false}},
		{1001, noSentinel, sentinelBlank, []int64{105e6, 105e6, 106e6}, []bool{true, true, false}},
		{1001, noSentinel, sentinelNotPermitted, []int64{101e6}, []bool{false}},
		{1001, noSentinel, noSentinel, []int64{101e6}, []bool{false}},
		{1001, sentinelBlank, sentinelBlank, []int64{101e6}, []bool{false}},
		{150, noSentinel, sentinelBlank, []int64{101e6}, []bool{false}},
	} {
		b := &block{fields: []uint16{c.id}, every: time.Second / 2, cells: []cell{{micros: 100e6, sentinel: c.first}}, seen: make([]seen, 1)}
		for i, at := range c.micros {
			testkit.Equal(t, fmt.Sprintf("field %d, %v after %v at %v", c.id, c.next, c.first, at), c.keeps[i], b.keeps(0, &cell{micros: at, sentinel: c.next}))
		}
	}
}
