package rocm

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// startPatience is how long Open waits for the library, whose facts become labels. Then Open continues without it.
const startPatience = 5 * time.Second

// added reads libamd_smi in addition to /sys. Only its own goroutine calls the library. While a library call hangs, the
// added values are blank, and the values of /sys are not delayed.
type added struct {
	lib   *amdSMI
	log   *zap.Logger
	every time.Duration

	tried     chan struct{}         // closed when the first start has succeeded or failed
	facts     map[string]boardFacts // nil if the start failed
	ready     chan struct{}         // closed when gpus is complete
	firstTurn chan struct{}         // closed when every GPU has been read once
	gpus      []*addedGPU
	stop      context.CancelFunc
	ended     sync.WaitGroup
}

// addedGPU is the part of added that one source uses.
type addedGPU struct {
	pci    string
	all    *added
	files  *sysfs.Handle
	needed bool // the list has records
	latest atomic.Pointer[addedRow]
	said   state // only for added's goroutine
}

// addedRow holds the records of one turn; nil if they cannot be read.
type addedRow struct {
	at      time.Time
	records *[severities]recordSum
}

// startAdded loads and starts the library. It waits at most startPatience or until ctx ends. Errors:
// collector.ErrNotLoaded, collector.ErrNotBuiltIn, wrapped.
func startAdded(ctx context.Context, o Options, gpus []sysfs.GPU, every time.Duration) (*added, error) {
	lib, err := loadAMD(o.Library)
	if err != nil {
		return nil, err
	}
	// The goroutine outlives Open.
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &added{lib: lib, log: o.Log, every: every, tried: make(chan struct{}), ready: make(chan struct{}), firstTurn: make(chan struct{}), stop: stop}
	a.ended.Go(func() { a.run(run, gpus) })
	if !within(ctx, startPatience, a.tried) {
		o.Log.Warn("AMD SMI has not started yet; using /sys only until then", zap.String("file", lib.Path()), zap.Duration("waited", startPatience))
	}
	return a, nil
}

// within waits until c is closed, for d or until ctx ends, and reports whether c was closed.
func within(ctx context.Context, d time.Duration, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-time.After(d):
	case <-ctx.Done():
	}
	return false
}

// begin starts reading the GPUs and waits for the first turn.
func (a *added) begin(ctx context.Context) {
	close(a.ready)
	select {
	case <-a.tried:
		if a.facts != nil {
			within(ctx, startPatience, a.firstTurn)
		}
	default: // the start hangs
	}
}

// run makes all library calls, on one thread that ends with run.
func (a *added) run(ctx context.Context, gpus []sysfs.GPU) {
	runtime.LockOSThread()
	defer cFree(a.lib.memory)
	first := true
	for said := state(""); ; {
		err := a.lib.Start()
		if err == nil {
			break
		}
		said.log(a.log.With(zap.String("file", a.lib.Path())), zap.WarnLevel, "cannot start AMD SMI; using /sys only", "", err)
		if first {
			first = false
			close(a.tried)
		}
		if within(ctx, time.Minute, ctx.Done()); ctx.Err() != nil {
			return
		}
	}
	if first {
		a.facts = map[string]boardFacts{}
		for i := range gpus {
			a.facts[gpus[i].PCI] = a.lib.Facts(gpus[i].PCI)
		}
		close(a.tried)
	}
	a.log.Info("reading AMD SMI in addition to /sys", zap.String("file", a.lib.Path()), zap.Stringer("version", a.lib.Version()))
	select {
	case <-a.ready:
	case <-ctx.Done():
	}
	for turn := 0; ctx.Err() == nil; turn++ {
		for _, g := range a.gpus {
			if g.needed && ctx.Err() == nil && !g.files.Suspended() {
				a.readGPU(g)
			}
		}
		if turn == 0 {
			close(a.firstTurn)
		}
		within(ctx, a.every, ctx.Done())
	}
	if err := a.lib.Stop(); err != nil {
		a.log.Warn("cannot stop AMD SMI", zap.Error(err))
	}
}

// readGPU reads the records of a GPU.
func (a *added) readGPU(g *addedGPU) {
	if !a.lib.Lists(g.pci) {
		g.log(errors.New("the library does not list the GPU"))
		return
	}
	records, err := a.lib.Records(g.pci, time.Now())
	g.log(err)
	g.latest.Store(&addedRow{time.Now(), records})
}

func (g *addedGPU) log(err error) {
	g.said.log(g.all.log.With(zap.String("device", g.pci)), zap.WarnLevel,
		"AMD SMI cannot read some values of a gpu", "AMD SMI reads all values of a gpu again", err)
}

// factsOf returns the facts of a GPU. They are empty if the library did not start in time for Open.
func (a *added) factsOf(pci string) boardFacts {
	if a != nil {
		select {
		case <-a.tried:
			if f, known := a.facts[pci]; known {
				return f
			}
		default:
		}
	}
	return boardFacts{MemoryWidth: math.NaN(), MemoryBandwidth: math.NaN()}
}

// addedTexts returns the text facts by field.
func addedTexts(f boardFacts) map[field.ID]string {
	return map[field.ID]string{
		field.AMDManufacturer: f.Manufacturer, field.AMDModelNumber: f.Number, field.AMDFRU: f.FRU, field.AMDVBIOSName: f.VBIOSName,
		field.AMDVBIOSDate: f.VBIOSDate, field.AMDVBIOSPart: f.PartNumber, field.AMDMemoryKind: f.MemoryKind, field.AMDMemoryMaker: f.MemoryMaker,
	}
}

// close ends the goroutine and waits for a running call.
func (a *added) close() {
	a.stop()
	a.ended.Wait()
}

// row returns the newest row of a GPU, or nil without a row or if it is more than three turns old.
func (g *addedGPU) row(now time.Time) *addedRow {
	r := g.latest.Load()
	if r == nil || now.Sub(r.at) > 3*g.all.every+startPatience {
		return nil
	}
	return r
}

// Values of the records of a severity, for term.at. The newest record's AFIDs follow from recordAFID.
const (
	recordCount = iota
	recordTime  // of the newest, Unix seconds
	recordAge   // of the newest, seconds
	recordUndated
	recordAFID
)

// ofRecord computes opRecord.
func (b *bound) ofRecord(f *frame) float64 {
	if f.added == nil || f.added.records == nil {
		return math.NaN()
	}
	switch r := &f.added.records[b.first]; {
	case b.at == recordCount:
		return float64(r.Count)
	case b.at == recordUndated && (r.Count == 0 || !r.Time.IsZero()):
		return 0
	case b.at == recordUndated:
		return 1
	case b.at >= recordAFID && b.at-recordAFID < len(r.AFIDs):
		return float64(r.AFIDs[b.at-recordAFID])
	case b.at >= recordAFID, r.Time.IsZero():
		return math.NaN()
	case b.at == recordTime:
		return float64(r.Time.Unix())
	default:
		return max(f.wall.Sub(r.Time).Seconds(), 0)
	}
}

// addedSpecs returns the columns that libamd_smi adds to a GPU.
func addedSpecs(more boardFacts) []spec {
	out := []spec{fixed(field.AMDMemoryWidth, more.MemoryWidth)}
	for i := range severities {
		severity := collector.Label{Name: "severity", Value: i.String()}
		add := func(id field.ID, at int, labels ...collector.Label) {
			out = append(out, spec{id, append(labels, severity), []term{{op: opRecord, first: int(i), at: at, scale: 1}}})
		}
		add(field.AMDRecords, recordCount)
		add(field.AMDRecordTime, recordTime)
		add(field.AMDRecordAge, recordAge)
		add(field.AMDRecordsUndated, recordUndated)
		for n := range maxAFIDs {
			add(field.AMDAFID, recordAFID+n, collector.Label{Name: "index", Value: strconv.Itoa(n)})
		}
	}
	return out
}

// addedInterval returns the interval for reading the library: the shortest interval of a list row that needs it, at most
// the interval of slow fields.
func addedInterval(fields field.List) time.Duration {
	values := []field.ID{field.AMDRecords, field.AMDRecordTime, field.AMDRecordAge, field.AMDRecordsUndated, field.AMDAFID}
	return max(shortestInterval(fields, values, 30*time.Second), time.Second)
}
