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

// What libamd_smi adds to the values of /sys, as indices of a row.
const (
	addedCount     = 0                                                             // records by severity
	addedTime      = addedCount + int(amdsmi.Severities)                           // of the newest, Unix seconds
	addedAFID      = addedTime + int(amdsmi.Severities)                            // of the newest, by severity and place
	addedViolation = addedAFID + int(amdsmi.Severities)*amdsmi.MaxAFIDs            // of the board
	addedXCC       = addedViolation + len(amdsmi.Violations{}.Board)               // by reason, partition and chiplet
	addedMemory    = addedXCC + amdsmi.XCCViolations*amdsmi.Partitions*amdsmi.XCCs // width, bandwidth
	addedWidth     = addedMemory + 2
)

// startPatience is how long Open waits for the library, whose facts become labels; it continues
// without it then.
const startPatience = 5 * time.Second

// added is libamd_smi next to /sys. Only its goroutine calls the library, so that one that
// hangs delays no value of /sys: what it adds is blank then.
type added struct {
	lib   *amdsmi.Library
	log   *zap.Logger
	every time.Duration

	tried chan struct{}           // closed when the first start has succeeded or failed
	facts map[string]amdsmi.Facts // nil if it has failed
	ready chan struct{}           // closed when gpus is complete
	read1 chan struct{}           // closed when all of them have been read once
	gpus  []*addedGPU
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// addedGPU is what a source has of it.
type addedGPU struct {
	pci                 string
	all                 *added
	files               *sysfs.Handle
	records, violations bool // wanted
	memory              [2]float64
	latest              atomic.Pointer[addedRow]
	said                [2]string // goroutine of added
}

// addedRow is what one turn has read.
type addedRow struct {
	at     time.Time
	values [addedWidth]float64
}

// startAdded loads the library and starts it, for as long as startPatience or ctx.
// Errors: collector.ErrNotLoaded, collector.ErrNotBuiltIn, wrapped.
func startAdded(ctx context.Context, o Options, gpus []sysfs.GPU, every time.Duration) (*added, error) {
	names := libraryNames(o.Library, "/opt", amdSMISonames(), "lib", "lib64", "share/amd_smi/amdsmi")
	lib, err := amdsmi.Load(names)
	if err != nil {
		return nil, notLoaded("AMD SMI", names, err)
	}
	// What the goroutine does outlives Open.
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &added{lib: lib, log: o.Log, every: every, tried: make(chan struct{}), ready: make(chan struct{}), read1: make(chan struct{}), stop: stop}
	a.ended.Go(func() { a.run(run, gpus) })
	if !within(ctx, a.tried) {
		o.Log.Warn("AMD SMI has not started yet: what it adds to the values of /sys is missing until it has", zap.String("file", lib.Path()), zap.Duration("waited", startPatience))
	}
	return a, nil
}

// within waits until a channel is closed, for as long as startPatience or ctx.
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

// begin lets the library read the GPUs, and waits for the first time.
func (a *added) begin(ctx context.Context) {
	close(a.ready)
	select {
	case <-a.tried:
		if a.facts != nil {
			within(ctx, a.read1)
		}
	default: // it hangs
	}
}

// amdSMISonames are the names of the library, newest first: 27 is ROCm 10, 26 is 7, 25 is 6.4, 24
// is 6.1 to 6.3.
func amdSMISonames() []string {
	return []string{"libamd_smi.so.27", "libamd_smi.so.26", "libamd_smi.so.25", "libamd_smi.so.24", "libamd_smi.so"}
}

// run makes all calls, on one thread, which ends with it.
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
			a.log.Warn("AMD SMI does not start: what it adds to the values of /sys is missing", zap.String("file", a.lib.Path()), zap.Error(err))
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
	a.log.Info("AMD SMI adds to the values of /sys", zap.String("file", a.lib.Path()), zap.Stringer("version", a.lib.Version()))
	select {
	case <-a.ready:
	case <-ctx.Done():
	}
	for turn := 0; ctx.Err() == nil; turn++ {
		for _, g := range a.gpus {
			if ctx.Err() == nil && !g.files.Suspended() {
				a.read(g)
			}
		}
		if turn == 0 {
			close(a.read1)
		}
		sleep(ctx, a.every)
	}
	if err := a.lib.Stop(); err != nil {
		a.log.Warn("AMD SMI does not stop", zap.Error(err))
	}
}

// sleep reports whether the time has passed before ctx ended.
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

// read reads what is wanted of a GPU.
func (a *added) read(g *addedGPU) {
	row := &addedRow{}
	for i := range row.values {
		row.values[i] = math.NaN()
	}
	copy(row.values[addedMemory:], g.memory[:])
	if !a.lib.Lists(g.pci) {
		a.say(g, 0, errors.New("the library does not list the GPU"))
		return
	}
	if g.records {
		records, err := a.lib.Records(g.pci, time.Now())
		row.putRecords(records)
		a.say(g, 0, err)
	}
	if g.violations {
		v, err := a.lib.Violations(g.pci)
		row.putViolations(v)
		a.say(g, 1, err)
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

// say logs a change of what cannot be read of a GPU.
func (a *added) say(g *addedGPU, about int, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == g.said[about] {
		return
	}
	if g.said[about] = text; err != nil {
		a.log.Warn("AMD SMI cannot read all of a gpu", zap.String("device", g.pci), zap.Error(err))
	} else {
		a.log.Info("AMD SMI reads again", zap.String("device", g.pci))
	}
}

// of returns the facts of a GPU, none if the library had not started in time for Open.
func (a *added) of(pci string) amdsmi.Facts {
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

// why says why the library is not asked for a value of its row, "" if it is. The violation
// status comes from gpu_metrics, as the library's own; it is asked for if that has a revision that is
// not known, and of MI300 and later alone: of others some releases read memory that is not theirs.
func (b *binder) why(i int) string {
	switch {
	case b.added == nil:
		return "only AMD SMI has it: --rocm-source=amdsmi"
	case i >= addedMemory:
		return b.added.lib.RefusesMemory()
	case i >= addedViolation && (b.family != mi300 || b.metrics != nil):
		return "gpu_metrics has it"
	case i >= addedViolation:
		return b.added.lib.RefusesViolations()
	}
	return b.added.lib.RefusesRecords()
}

// addedTexts are the texts among the facts.
func addedTexts(f amdsmi.Facts) map[field.ID]string {
	return map[field.ID]string{
		field.AMDManufacturer: f.Manufacturer, field.AMDModelNumber: f.Number, field.AMDFRU: f.FRU, field.AMDVBIOSName: f.VBIOSName,
		field.AMDVBIOSDate: f.VBIOSDate, field.AMDVBIOSPart: f.PartNumber, field.AMDMemoryKind: f.MemoryKind, field.AMDMemoryMaker: f.MemoryMaker,
	}
}

// add makes what a source has of it.
func (a *added) add(g *sysfs.GPU, files *sysfs.Handle, records, violations bool) *addedGPU {
	f := a.of(g.PCI)
	out := &addedGPU{pci: g.PCI, files: files, all: a, records: records, violations: violations, memory: [2]float64{f.MemoryWidth, f.MemoryBandwidth}}
	a.gpus = append(a.gpus, out)
	return out
}

// calls is what the library's calls have cost, for all GPUs: the first reports it.
func (g *addedGPU) calls() []collector.CallCost {
	if g != g.all.gpus[0] {
		return nil
	}
	return g.all.lib.Calls()
}

// close ends the goroutine. It waits for a call in progress.
func (a *added) close() {
	a.stop()
	a.ended.Wait()
}

// row is the newest one of a GPU; nil if there is none, or none in three turns.
func (g *addedGPU) row(now time.Time) *addedRow {
	r := g.latest.Load()
	if r == nil || now.Sub(r.at) > 3*g.all.every+startPatience {
		return nil
	}
	return r
}

// fromAdded is a value that libamd_smi adds, × scale.
func fromAdded(i int, scale float64) term { return term{op: opAdded, first: i, scale: scale} }

// addedSpecs are the columns that libamd_smi adds to a GPU.
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

// addedShare is what it has of the share of a chiplet's clock below the host's limit, by reason;
// at counts the chiplets of all partitions.
func addedShare(reason, at int) []term {
	if reason >= amdsmi.XCCViolations {
		return nil
	}
	return []term{fromAdded(addedXCC+reason*amdsmi.Partitions*amdsmi.XCCs+at, fromPercent)}
}

// addedInterval is how often the library is asked: the shortest that a row about what it adds
// asks for, or that of slow fields.
func addedInterval(fields field.List) time.Duration {
	shortest := 30 * time.Second
	for _, r := range fields.Readings() {
		if r.Desc.ID >= field.FirstAMDSMI && r.Interval > 0 {
			shortest = min(shortest, max(r.Interval, time.Second))
		}
	}
	return shortest
}
