//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

const (
	// Pauses between attempts to reopen an event set.
	firstPause = time.Second
	lastPause  = time.Minute

	// maxWaiting bounds the XIDs that wait for a row. A row holds a few per tick, so a storm is spread over several
	// ticks. XIDs beyond the bound are lost and logged as lost.
	maxWaiting = 256

	// maxCodes bounds the distinct XIDs that are remembered and logged; drivers define fewer than 200.
	maxCodes = 256

	// maxLast bounds the instances whose last XID is remembered; a GPU has fewer.
	maxLast = 2 * maxInstances

	// noInstance is NVML's GPU or compute instance ID for "none".
	noInstance = 0xffffffff
)

// errNoEvents means that a GPU or its driver has no XID events.
var errNoEvents = errors.New("XID events are not supported")

// xid is one XID that NVML reported.
type xid struct {
	code   uint64
	gi, ci uint32 // the instance; noInstance: the whole GPU
}

// eventSet is an NVML event set with one registered GPU.
type eventSet interface {
	Wait(timeout uint32) (nvml.EventData, nvml.Return)
	Free() nvml.Return
}

// xids holds the XIDs of one GPU since Open. The source's goroutine reads them from an event set. XIDs that occur while
// no set is open are missed; xids logs that gap.
type xids struct {
	open func() (eventSet, error)
	log  *zap.Logger
	now  func() time.Time

	set   eventSet  // nil while no set is open
	whole time.Time // no XID was missed since then
	retry time.Time // earliest time to reopen the set
	pause time.Duration
	deaf  bool // no set is open, and that was logged
	cost  *collector.Meter

	waiting      []xid // for a row, oldest first
	lost         uint64
	last         []xid // newest XID of each GPU and compute instance, the newest at the end
	codes        map[uint64]bool
	reconfigured bool // the MIG layout has changed
	kept         bool // the set stays open for the next session
}

// newXIDs opens an event set for a GPU, or reuses the set that an earlier session kept. It returns nil if the list
// has neither XID nor health fields and the GPU has no MIG mode, or if the GPU has no events.
func newXIDs(l *library, g *gpu, fields []field.Reading, kept *keptXIDs, log *zap.Logger, c *costs) *xids {
	former := kept.claim(g.device.ID)
	if !field.Asks(fields, field.XIDErrors, field.XIDEvent, field.GPUHealth) && !g.migCapable {
		if former != nil {
			former.close()
		}
		return nil
	}
	open, cost := func() (eventSet, error) { return openEvents(l.has, l.api, g.handle) }, c.meter("nvmlEventSetWait_v2")
	if former != nil {
		former.open, former.log, former.cost, former.reconfigured = open, log, cost, false
		return former
	}
	x, err := openXIDs(open, log, cost)
	if err != nil {
		log.Info("GPU reports no XID events", zap.Error(err))
		return nil
	}
	return x
}

// openXIDs opens an event set. If the GPU supports events but the set cannot be opened now, openXIDs succeeds and poll
// tries again.
func openXIDs(open func() (eventSet, error), log *zap.Logger, cost *collector.Meter) (*xids, error) {
	x := &xids{open: open, log: log, now: time.Now, codes: map[uint64]bool{}, cost: cost}
	set, err := open()
	switch {
	case errors.Is(err, errNoEvents):
		return nil, err
	case err != nil:
		x.fail(x.now(), err)
	}
	x.set, x.whole = set, x.now()
	return x, nil
}

// eventSymbols exist since driver 450, which added the second version of the wait: the first does not report the instance.
var eventSymbols = [...]string{
	"nvmlDeviceGetSupportedEventTypes", "nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlEventSetFree",
}

// openEvents registers a GPU for XIDs and, if the driver has them, for changes of the MIG layout. Other events are not
// needed: the collector reads their values anyway, and clock events come by the thousand.
func openEvents(has func(symbol string) bool, api nvml.Interface, gpu nvml.Device) (eventSet, error) {
	for _, symbol := range eventSymbols {
		if !has(symbol) {
			return nil, fmt.Errorf("%w: the driver has no %s", errNoEvents, symbol)
		}
	}
	types, ret := gpu.GetSupportedEventTypes()
	switch {
	case ret == nvml.ERROR_NOT_SUPPORTED, ret == nvml.SUCCESS && types&nvml.EventTypeXidCriticalError == 0:
		return nil, errNoEvents
	case ret != nvml.SUCCESS:
		return nil, fmt.Errorf("read supported event types: %w", ret)
	}
	set, ret := api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("create event set: %w", ret)
	}
	if ret = gpu.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret == nvml.SUCCESS && types&nvml.EventMigConfigChange != 0 {
		// Registered separately, because NOT_SUPPORTED registers none of the requested types.
		if ret = gpu.RegisterEvents(nvml.EventMigConfigChange, set); ret == nvml.ERROR_NOT_SUPPORTED {
			ret = nvml.SUCCESS
		}
	}
	if ret == nvml.SUCCESS {
		return set, nil
	}
	_ = set.Free() // nothing to do about an error
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil, errNoEvents
	}
	return nil, fmt.Errorf("register for events: %w", ret)
}

// poll reads the pending events without waiting.
func (x *xids) poll() {
	now := x.now()
	if x.set == nil {
		if now.Before(x.retry) {
			return
		}
		set, err := x.open()
		if err != nil {
			x.fail(now, err)
			return
		}
		x.set, x.whole, x.pause, x.deaf = set, x.now(), 0, false
	}
	if err := x.drain(); err != nil {
		_ = x.set.Free() // nothing to do about an error
		x.set = nil
		x.fail(now, err)
	}
}

// fail schedules the next attempt to open an event set, and logs the first failure.
func (x *xids) fail(now time.Time, err error) {
	x.pause = min(max(2*x.pause, firstPause), lastPause)
	x.retry = now.Add(x.pause)
	if x.deaf {
		return
	}
	x.deaf = true
	level := zap.WarnLevel
	if code := nvml.SUCCESS; errors.As(err, &code) && lost(code) {
		level = zap.DebugLevel // the device's state reports it
	}
	x.log.Log(level, "missing the XIDs of this GPU until its event set can be opened again", zap.Error(err))
}

// drain reads the pending events, at most maxWaiting at a time.
func (x *xids) drain() error {
	for range maxWaiting {
		start := x.cost.Begin()
		e, ret := x.set.Wait(0)
		x.cost.Record(1, start)
		switch {
		case ret == nvml.ERROR_TIMEOUT:
			return nil
		case ret != nvml.SUCCESS:
			return fmt.Errorf("wait for events: %w", ret)
		case e.EventType == nvml.EventTypeXidCriticalError:
			x.record(xid{e.EventData, e.GpuInstanceId, e.ComputeInstanceId})
		case e.EventType == nvml.EventMigConfigChange:
			x.reconfigured = true
		}
	}
	return nil
}

// record stores an XID and logs the first of each code: a row may never hold what a GPU reports before it hangs.
func (x *xids) record(e xid) {
	if len(x.waiting) == maxWaiting {
		x.waiting = x.waiting[1:]
		x.lost++
		x.whole = x.now()
	}
	x.waiting = append(x.waiting, e)
	x.last = slices.DeleteFunc(x.last, func(l xid) bool { return l.gi == e.gi && l.ci == e.ci })
	x.last = append(x.last, e)
	x.last = slices.Delete(x.last, 0, max(0, len(x.last)-maxLast))
	if !x.codes[e.code] && len(x.codes) < maxCodes {
		x.codes[e.code] = true
		x.log.Warn("XID", zap.Uint64("xid", e.code), zap.String("meaning", field.XIDText(int(min(e.code, 1<<30)))))
	}
}

func (x *xids) close() {
	if x.set != nil && !x.kept {
		_ = x.set.Free() // nothing to do about an error
		x.set = nil
	}
}

// keptXIDs holds the event sets that stay open from one session to the next, and a reference to NVML while it has some.
// The zero keptXIDs keeps nothing.
type keptXIDs struct {
	mu   sync.Mutex
	gpus map[string]*xids // by the GPU's ID; nil: none is kept
	lib  *library         // to be closed once; nil: a collector has NVML open
}

// claim removes and returns the kept XIDs of a GPU; nil if there are none.
func (k *keptXIDs) claim(gpu string) *xids {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.gpus[gpu]
	delete(k.gpus, gpu)
	if x != nil {
		x.kept = false
	}
	return x
}

// put keeps the XIDs of sources that are about to be closed, and the reference to NVML if there are any. It reports
// whether it has kept the reference.
func (k *keptXIDs) put(sources []collector.Source, lib *library) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range sources {
		if s, ok := s.(*source); ok && s.events != nil && k.gpus != nil {
			s.events.kept = true
			k.gpus[s.devices[0].ID] = s.events.xids
		}
	}
	if len(k.gpus) > 0 {
		k.lib = lib
	}
	return k.lib != nil
}

// free closes the sets that no collector has taken, and drops the reference to NVML.
func (k *keptXIDs) free() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, x := range k.gpus {
		x.kept = false
		x.close()
	}
	clear(k.gpus)
	k.release()
}

// release drops the reference to NVML, which another collector has open now, or which cannot be opened any more.
func (k *keptXIDs) release() {
	if k.lib == nil {
		return
	}
	_ = k.lib.close() // the next call of NVML has the error
	k.lib = nil
}

// Event columns per device: how many XIDs of one tick a row can hold. The rest waits for the next tick.
const (
	slotsOfGPU      = 4
	slotsOfInstance = 2
)

// eventsPart supplies DCGM_FI_DEV_XID_ERRORS (the last XID, or 0 while an event set is open that has reported none) and
// the event columns behind DCGM_EXP_XID_ERRORS_*. It requests a new Open when the driver reports another MIG layout. It
// is the last part of a source, because the XID of a lost GPU arrives together with the failure.
type eventsPart struct {
	*xids
	columnList
	instances []instance
	latest    []int   // columns of XIDErrors
	slots     [][]int // event columns by device
	since     int     // column of XIDsSince; -1 if the list has no events
	none      float64 // the last XID while no event set is open
	used      []int   // used slots per device in the current row
	logged    uint64  // lost events already logged
}

// newEventsPart makes the events part of a GPU, nil without events. The devices of its source are the GPU and then its
// instances, in order.
func newEventsPart(x *xids, g *gpu, fields []field.Reading, why *reasons) *eventsPart {
	if x == nil {
		return nil
	}
	devices := 1 + len(g.instances)
	p := &eventsPart{xids: x, instances: g.instances, slots: make([][]int, devices), since: -1, used: make([]int, devices)}
	p.none = why.Blank(collector.ReasonBlank, "NVML opens no event set for the XIDs of this GPU: the log has its answer")
	for _, r := range fields {
		for d := range devices {
			switch r.Desc.ID {
			case field.XIDErrors:
				p.latest = append(p.latest, p.addColumn(d, r.Desc.ID))
			case field.XIDEvent:
				n := slotsOfGPU
				if d > 0 {
					n = slotsOfInstance
				}
				for i := range n {
					p.slots[d] = append(p.slots[d], p.addColumn(d, r.Desc.ID, collector.Label{Name: "slot", Value: strconv.Itoa(i)}))
				}
				if d == 0 {
					p.since = p.addColumn(d, field.XIDsSince)
				}
			}
		}
	}
	return p
}

func (p *eventsPart) addColumn(device int, id field.ID, labels ...collector.Label) int {
	p.cols = append(p.cols, collector.Column{Device: device, Field: id, Labels: labels})
	return len(p.cols) - 1
}

// device returns which of the source's devices an XID concerns: the instance with both IDs; else one of the same GPU
// instance, because dcgm-exporter has GPU instances only; else the GPU.
func (p *eventsPart) device(e xid) int {
	found := 0
	for i, in := range p.instances {
		ci := uint32(noInstance) // a split GPU instance
		if in.ci >= 0 {
			ci = uint32(in.ci)
		}
		switch {
		case e.gi == noInstance || uint32(in.gi) != e.gi:
		case ci == e.ci:
			return 1 + i
		case found == 0:
			found = 1 + i
		}
	}
	return found
}

func (p *eventsPart) sample(row []float64, due []bool) error {
	p.poll()
	p.fillLatest(row, due)
	p.fillEvents(row, due)
	if p.since >= 0 && due[p.since] && p.set != nil {
		row[p.since] = float64(p.whole.UnixMicro())
	}
	if p.reconfigured {
		return collector.ErrColumnsChanged
	}
	return nil
}

// fillLatest writes the last XIDs.
func (p *eventsPart) fillLatest(row []float64, due []bool) {
	for _, i := range p.latest {
		if !due[i] {
			continue
		}
		if row[i] = p.none; p.set != nil {
			row[i] = 0
		}
		for _, e := range p.last { // the newest comes last and wins
			if p.device(e) == p.cols[i].Device {
				row[i] = float64(e.code)
			}
		}
	}
}

// fillEvents writes the XIDs that wait for a row, in order, until one finds no free due cell.
func (p *eventsPart) fillEvents(row []float64, due []bool) {
	clear(p.used)
	n := 0
	for _, e := range p.waiting {
		d := p.device(e)
		if slots := p.slots[d]; len(slots) > 0 {
			if p.used[d] == len(slots) || !due[slots[p.used[d]]] {
				break
			}
			row[slots[p.used[d]]] = float64(e.code)
			p.used[d]++
		}
		n++
	}
	p.waiting = slices.Delete(p.waiting, 0, n)
	if p.lost > p.logged {
		p.log.Warn("too many XIDs for the rows; some are not counted", zap.Uint64("lost", p.lost-p.logged))
		p.logged = p.lost
	}
}
