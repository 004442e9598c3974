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

	"warpgauge/collectors/rocm/internal/amdsmi"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Indexes of libamd_smi's values in a row.
const (
	addedCount     = 0                                                             // number of records, by severity
	addedTime      = addedCount + int(amdsmi.Severities)                           // time of the newest record, by severity, Unix seconds
	addedAFID      = addedTime + int(amdsmi.Severities)                            // AFIDs of the newest record, by severity and position
	addedViolation = addedAFID + int(amdsmi.Severities)*amdsmi.MaxAFIDs            // violations of the board
	addedXCC       = addedViolation + len(amdsmi.Violations{}.Board)               // violations by reason, partition and chiplet
	addedMemory    = addedXCC + amdsmi.XCCViolations*amdsmi.Partitions*amdsmi.XCCs // memory bus width, bandwidth
	addedWidth     = addedMemory + 2
)

// startPatience is how long Open waits for the library, whose facts become labels. Then Open continues without it.
const startPatience = 5 * time.Second

// added reads libamd_smi in addition to /sys. Only its own goroutine calls the library. While a library call hangs, the
// added values are blank, and the values of /sys are not delayed.
type added struct {
	lib   *amdsmi.Library
	log   *zap.Logger
	every time.Duration

	tried     chan struct{}           // closed when the first start has succeeded or failed
	facts     map[string]amdsmi.Facts // nil if the start failed
	ready     chan struct{}           // closed when gpus is complete
	firstTurn chan struct{}           // closed when every GPU has been read once
	gpus      []*addedGPU
	stop      context.CancelFunc
	ended     sync.WaitGroup
}

// addedGPU is the part of added that one source uses.
type addedGPU struct {
	pci                 string
	all                 *added
	files               *sysfs.Handle
	records, violations bool // needed by the list
	memory              [2]float64
	latest              atomic.Pointer[addedRow]
	said                [2]string // last logged errors; only for added's goroutine
}

// addedRow holds the values of one turn.
type addedRow struct {
	at     time.Time
	values [addedWidth]float64
}

// startAdded loads and starts the library. It waits at most startPatience or until ctx ends. Errors:
// collector.ErrNotLoaded, collector.ErrNotBuiltIn, wrapped.
func startAdded(ctx context.Context, o Options, gpus []sysfs.GPU, every time.Duration) (*added, error) {
	lib, err := amdsmi.Load(o.Library)
	if err != nil {
		return nil, err
	}
	// The goroutine outlives Open.
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &added{lib: lib, log: o.Log, every: every, tried: make(chan struct{}), ready: make(chan struct{}), firstTurn: make(chan struct{}), stop: stop}
	a.ended.Go(func() { a.run(run, gpus) })
	if !within(ctx, a.tried) {
		o.Log.Warn("AMD SMI has not started yet; using /sys only until then", zap.String("file", lib.Path()), zap.Duration("waited", startPatience))
	}
	return a, nil
}

// within waits until c is closed, for startPatience or until ctx ends, and reports whether c was closed.
func within(ctx context.Context, c <-chan struct{}) bool {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-c:
		return true
	case <-patience.C:
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
			within(ctx, a.firstTurn)
		}
	default: // the start hangs
	}
}

// run makes all library calls, on one thread that ends with run.
func (a *added) run(ctx context.Context, gpus []sysfs.GPU) {
	runtime.LockOSThread()
	defer a.lib.Free()
	first := true
	for said := ""; ; {
		err := a.lib.Start()
		if err == nil {
			break
		}
		if said != err.Error() {
			said = err.Error()
			a.log.Warn("cannot start AMD SMI; using /sys only", zap.String("file", a.lib.Path()), zap.Error(err))
		}
		if first {
			first = false
			close(a.tried)
		}
		if !sleep(ctx, time.Minute) {
			return
		}
	}
	if first {
		a.facts = map[string]amdsmi.Facts{}
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
			if ctx.Err() == nil && !g.files.Suspended() {
				a.readGPU(g)
			}
		}
		if turn == 0 {
			close(a.firstTurn)
		}
		sleep(ctx, a.every)
	}
	if err := a.lib.Stop(); err != nil {
		a.log.Warn("cannot stop AMD SMI", zap.Error(err))
	}
}

// sleep reports whether d has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// readGPU reads the needed values of a GPU.
func (a *added) readGPU(g *addedGPU) {
	row := &addedRow{}
	for i := range row.values {
		row.values[i] = math.NaN()
	}
	copy(row.values[addedMemory:], g.memory[:])
	if !a.lib.Lists(g.pci) {
		a.logChange(g, 0, errors.New("the library does not list the GPU"))
		return
	}
	if g.records {
		records, err := a.lib.Records(g.pci, time.Now())
		row.putRecords(records)
		a.logChange(g, 0, err)
	}
	if g.violations {
		v, err := a.lib.Violations(g.pci)
		row.putViolations(v)
		a.logChange(g, 1, err)
	}
	row.at = time.Now()
	g.latest.Store(row)
}

func (r *addedRow) putRecords(all *[amdsmi.Severities]amdsmi.Records) {
	if all == nil {
		return
	}
	for i := range all {
		of := &all[i]
		r.values[addedCount+i] = float64(of.Count)
		if !of.Time.IsZero() {
			r.values[addedTime+i] = float64(of.Time.Unix())
		}
		for n, id := range of.AFIDs {
			r.values[addedAFID+i*amdsmi.MaxAFIDs+n] = float64(id)
		}
	}
}

func (r *addedRow) putViolations(v *amdsmi.Violations) {
	if v == nil {
		return
	}
	at := addedXCC + copy(r.values[addedViolation:], v.Board[:]) - len(v.Board)
	for i := range v.XCC {
		for p := range v.XCC[i] {
			at += copy(r.values[at:], v.XCC[i][p][:])
		}
	}
}

// logChange logs when an error about a GPU begins, changes or ends.
func (a *added) logChange(g *addedGPU, about int, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == g.said[about] {
		return
	}
	if g.said[about] = text; err != nil {
		a.log.Warn("AMD SMI cannot read some values of a gpu", zap.String("device", g.pci), zap.Error(err))
	} else {
		a.log.Info("AMD SMI reads all values of a gpu again", zap.String("device", g.pci))
	}
}

// factsOf returns the facts of a GPU. They are empty if the library did not start in time for Open.
func (a *added) factsOf(pci string) amdsmi.Facts {
	if a != nil {
		select {
		case <-a.tried:
			if f, known := a.facts[pci]; known {
				return f
			}
		default:
		}
	}
	return amdsmi.Facts{MemoryWidth: math.NaN(), MemoryBandwidth: math.NaN()}
}

// refusal returns why the library must not read value i of its row, or "" if it may. gpu_metrics has the same violation
// status, so the library reads it only if gpu_metrics has an unknown revision, and only for MI300 and later: for other
// GPUs some releases read memory out of bounds.
func (b *binder) refusal(i int) string {
	switch {
	case b.added == nil:
		return "only AMD SMI has it: --rocm-source=amdsmi"
	case i >= addedMemory:
		return b.added.lib.Refuses(amdsmi.MemoryFacts)
	case i >= addedViolation && (b.family != mi300 || b.metrics != nil):
		return "gpu_metrics has it"
	case i >= addedViolation:
		return b.added.lib.Refuses(amdsmi.ViolationStatus)
	}
	return b.added.lib.Refuses(amdsmi.ErrorRecords)
}

// addedTexts returns the text facts by field.
func addedTexts(f amdsmi.Facts) map[field.ID]string {
	return map[field.ID]string{
		field.AMDManufacturer: f.Manufacturer, field.AMDModelNumber: f.Number, field.AMDFRU: f.FRU, field.AMDVBIOSName: f.VBIOSName,
		field.AMDVBIOSDate: f.VBIOSDate, field.AMDVBIOSPart: f.PartNumber, field.AMDMemoryKind: f.MemoryKind, field.AMDMemoryMaker: f.MemoryMaker,
	}
}

// addGPU returns the part for one source.
func (a *added) addGPU(g *sysfs.GPU, files *sysfs.Handle, records, violations bool) *addedGPU {
	f := a.factsOf(g.PCI)
	out := &addedGPU{pci: g.PCI, files: files, all: a, records: records, violations: violations, memory: [2]float64{f.MemoryWidth, f.MemoryBandwidth}}
	a.gpus = append(a.gpus, out)
	return out
}

// calls returns the cost of the library's calls for all GPUs; only the first GPU reports it.
func (g *addedGPU) calls() []collector.CallCost {
	if g != g.all.gpus[0] {
		return nil
	}
	return g.all.lib.Calls()
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

// fromAdded returns a term for value i of libamd_smi's row, multiplied by scale.
func fromAdded(i int, scale float64) term { return term{op: opAdded, first: i, scale: scale} }

// addedSpecs returns the columns that libamd_smi adds to a GPU.
func addedSpecs() []spec {
	out := []spec{
		one(field.AMDMemoryWidth, fromAdded(addedMemory, 1)),
	}
	for i := range int(amdsmi.Severities) {
		severity := collector.Label{Name: "severity", Value: amdsmi.Severity(i).String()}
		add := func(id field.ID, t term, more ...collector.Label) {
			out = append(out, spec{id, append(more, severity), []term{t}})
		}
		add(field.AMDRecords, fromAdded(addedCount+i, 1))
		add(field.AMDRecordTime, fromAdded(addedTime+i, 1))
		add(field.AMDRecordAge, term{op: opAge, first: addedTime + i, scale: 1})
		for n := range amdsmi.MaxAFIDs {
			add(field.AMDAFID, fromAdded(addedAFID+i*amdsmi.MaxAFIDs+n, 1), collector.Label{Name: "index", Value: strconv.Itoa(n)})
		}
	}
	return out
}

// addedShare returns the term for the share of a chiplet's clock below the host's limit, by reason. at counts the
// chiplets of all partitions.
func addedShare(reason, at int) []term {
	if reason >= amdsmi.XCCViolations {
		return nil
	}
	return []term{fromAdded(addedXCC+reason*amdsmi.Partitions*amdsmi.XCCs+at, fromPercent)}
}

// addedInterval returns the interval for reading the library: the shortest interval of a list row that needs it, at most
// the interval of slow fields.
func addedInterval(fields field.List) time.Duration {
	values := []field.ID{field.AMDRecords, field.AMDRecordTime, field.AMDRecordAge, field.AMDAFID, field.AMDMemoryWidth}
	return max(shortestInterval(fields, values, 30*time.Second), time.Second)
}
