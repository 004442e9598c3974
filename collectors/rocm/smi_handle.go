package rocm

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/pkg/collector"
)

// smiHandle reads one GPU.
type smiHandle struct {
	shared *smiShared
	sys    string
	gpu    raw.GPU

	has   []bool
	cells []smiCell // as wanted
	asks  []smiAsk  // every different one of cells

	// Scratch of Read.
	at    []int // as asks: where in batch, -1 for those that are not due
	batch []smiAsk
	reply []smiAnswer

	generation uint64 // of the library's list, to which index belongs
	index      smiIndex
	busy       *os.File // gpu_busy_percent, without which a load of 0 is not believed
	gone       bool     // the last Read found no such GPU
	sensed     bool     // a sensor has answered since place
	impatient  bool     // the last Read waited for the library in vain

	count, nanos [smiFunctionCount]atomic.Uint64
	reading      sync.Mutex // held by Read
}

// smiCell is a wanted reading, and which of asks answers it: -1 if none.
type smiCell struct {
	smiReading
	ask int
}

// bind decides what the library is asked. Call it inside the gate.
func (h *smiHandle) bind(at smiIndex, wanted []raw.Reading) {
	known := map[smiAsk]int{}
	h.place(at)
	for _, w := range wanted {
		r, ok := smiReadingOf(w)
		ok = ok && h.can(&r)
		c := smiCell{smiReading: r, ask: -1}
		if ok {
			if _, ok := known[r.ask]; !ok {
				known[r.ask] = len(h.asks)
				h.asks = append(h.asks, r.ask)
			}
			c.ask = known[r.ask]
		}
		h.has, h.cells = append(h.has, ok), append(h.cells, c)
	}
	h.at = make([]int, len(h.asks))
	h.batch, h.reply = make([]smiAsk, 0, len(h.asks)), make([]smiAnswer, len(h.asks))
}

// can reports whether the library has the function, survives it, and finds the
// file that it reads.
func (h *smiHandle) can(r *smiReading) bool {
	f := r.ask.function
	switch {
	case !h.shared.lib.has(f) || h.shared.refuses(f) != "":
		return false
	case f == smiBusy && h.busy == nil:
		return false
	case f == smiMemoryUsage && r.ask.argument == 0 && !hasVRAM(h.gpu.Path):
		return false
	}
	return r.expects(h.gpu.Path, h.index.monitor)
}

// place notes where the library has the GPU now.
func (h *smiHandle) place(at smiIndex) {
	h.index, h.generation = at, h.shared.generation
	h.gone, h.sensed = false, false
	if h.busy != nil {
		_ = h.busy.Close() // it was only read
		h.busy = nil
	}
	if f, err := os.Open(filepath.Join(h.gpu.Path, "gpu_busy_percent")); err == nil {
		h.busy = f
	}
}

// Has says for each wanted reading whether the library is asked for it.
func (h *smiHandle) Has() []bool { return h.has }

// Read makes all calls that are due in one crossing into C. A call that does not
// return stalls Read, and nothing else.
// Errors: collector.ErrDeviceLost; collector.ErrColumnsChanged where the library
// has forgotten the GPU or cannot be started any more, so that a new Open reads
// it from /sys; errSMIDown; all wrapped. Due cells are NaN then.
func (h *smiHandle) Read(values []float64, due []bool) error {
	h.reading.Lock()
	defer h.reading.Unlock()
	err := h.call(due)
	for i := range h.cells {
		if !due[i] {
			continue
		}
		values[i] = math.NaN()
		if c := &h.cells[i]; err == nil && c.ask >= 0 && h.at[c.ask] >= 0 {
			values[i] = c.of(&h.reply[h.at[c.ask]])
		}
	}
	if err != nil {
		return fmt.Errorf("read GPU %q: %w", h.gpu.PCI, err)
	}
	return nil
}

// call makes the calls, where the library has the GPU now.
func (h *smiHandle) call(due []bool) error {
	s := h.shared
	patience := gatePatience
	if h.impatient {
		patience = 0
	}
	h.impatient = !s.gate.enter(patience)
	if h.impatient {
		return s.down()
	}
	defer s.gate.leave()
	if h.generation != s.generation {
		at, ok := s.index[h.gpu.PCI]
		switch {
		case ok:
			h.place(at)
		case exists(h.gpu.Path):
			// ROCm 5 counts cards and stops at that number: a gap in theirs hides
			// the last ones. Who opens again reads this GPU from /sys.
			return fmt.Errorf("ROCm SMI does not list it any more: %w", collector.ErrColumnsChanged)
		default:
			return h.lost()
		}
	}
	h.collect(due)
	if len(h.batch) == 0 {
		return nil
	}
	s.lib.batch(h.index.at, h.batch, h.reply)
	return h.judge()
}

// collect makes the batch. Without a list of sensors no function is called that
// would follow a null pointer to it.
func (h *smiHandle) collect(due []bool) {
	for a := range h.at {
		h.at[a] = -1
	}
	h.batch = h.batch[:0]
	for i := range h.cells {
		c := &h.cells[i]
		if !due[i] || c.ask < 0 || h.at[c.ask] >= 0 || c.sensors && h.index.monitor == "" {
			continue
		}
		q := h.asks[c.ask]
		if q.function == smiBusy {
			q.argument = math.MaxUint32
			if h.busy != nil {
				q.argument = uint32(h.busy.Fd())
			}
		}
		h.at[c.ask] = len(h.batch)
		h.batch = append(h.batch, q)
	}
}

// judge counts what the calls have cost, and finds out why they failed if all
// did, or all those for sensors: the GPU is gone, or it was and the library looks
// for it where it is not any more.
func (h *smiHandle) judge() error {
	var answered, sensed, dumb bool
	for i := range h.batch {
		f, a := h.batch[i].function, &h.reply[i]
		h.count[f].Add(1)
		h.nanos[f].Add(a.nanos)
		ok := a.status == smiSuccess
		answered = answered || ok
		sensed, dumb = sensed || ok && f.sensor(), dumb || !ok && f.sensor()
	}
	switch {
	case !answered && !exists(h.gpu.Path):
		return h.lost()
	case h.gone || h.sensed && dumb && !sensed && !exists(h.index.monitor):
		h.shared.renew(h.sys)
	}
	h.gone, h.sensed = false, h.sensed || sensed
	return nil
}

// lost tells the others once.
func (h *smiHandle) lost() error {
	if !h.gone {
		h.gone = true
		h.shared.lost()
	}
	return collector.ErrDeviceLost
}

// Calls returns what the calls have cost since Open.
func (h *smiHandle) Calls() []raw.Call {
	var calls []raw.Call
	for f := range smiFunctionCount {
		if n := h.count[f].Load(); n > 0 {
			calls = append(calls, raw.Call{Name: f.String(), Count: n, Time: time.Duration(h.nanos[f].Load())})
		}
	}
	return calls
}

// Close can be called twice. It leaves the file to the garbage collector where a
// Read hangs that may still look at it.
func (h *smiHandle) Close() error {
	if !h.reading.TryLock() {
		return nil
	}
	defer h.reading.Unlock()
	if h.busy == nil {
		return nil
	}
	err := h.busy.Close()
	h.busy = nil
	return err
}
