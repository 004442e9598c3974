package owner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// Usage holds the processes on each device at the last poll. It is immutable.
type Usage struct {
	Time    time.Time            // of the poll; zero before the first
	Devices map[string]DeviceUse // by collector.Device.ID: a GPU, or the instance if the library reports per instance
}

// DeviceUse holds the processes on a device. A device is missing if no library reports its processes, or if the report
// is too old.
type DeviceUse struct {
	Time time.Time // of the sample
	// Complete means that every process that the library counts on the device is listed and located. Only then does a
	// pod missing from Processes have no process on the device.
	Complete  bool
	Partial   bool // the library may not list all processes, so sums could be too small
	Processes []Process
}

// Process is a process on a device. Its name and place are empty if they could not be read.
type Process struct {
	collector.Process
	Name   string // of the command
	PodUID string // as in the control group: for a static pod, the hash in its annotation kubernetes.io/config.hash
	Job    string // Slurm's job number, "1234"
}

// MappingProcesses is the label mapping of processes.
const MappingProcesses = "processes"

// Reasons why the pods of processes are unknown.
const (
	ReasonNoHostPID = "no_host_pid" // we have our own PID namespace
	ReasonNoProc    = "no_proc"     // /proc cannot be read
	ReasonNoSource  = "no_source"   // no collector reports processes
	ReasonStale     = "stale"       // the collectors' reports are too old
	ReasonUnplaced  = "unplaced"    // listed processes are not in /proc, or their control groups cannot be read
)

const (
	processPeriod   = time.Second
	processMaxAge   = 10 * time.Second       // a device with an older sample is omitted
	processPatience = 3                      // consecutive polls with unlocated processes before a warning: some processes end between a sample and the poll
	processListAge  = 500 * time.Millisecond // how long On's answer stays valid
)

// Processes lists the processes on each device: it follows the rows of the process collectors (pkg/collector) and finds
// the pod and the batch job of each process by its control group in /proc. Run polls; On polls on demand.
//
// That needs the machine's PID namespace (hostPID: true), because drivers number processes in it, and newer NVIDIA
// drivers hide processes of other namespaces. In another namespace no process is located and no device is complete.
type Processes struct {
	Health *kube.Health

	board    *view.Board
	onChange func()
	log      *zap.Logger
	usage    atomic.Pointer[Usage]

	mu        sync.Mutex // guards the fields below
	view      *view.View
	sources   []*processSource
	locations *locations
	pidSpace  string // our PID namespace; empty until it could be read
	unplaced  int    // consecutive polls with unlocated processes
}

// processSource is a source on the board.
type processSource struct {
	*view.Source
	blocks []int // where the block of each device begins in a row
	row    view.Row
}

// outcome counts the results of a poll.
type outcome struct {
	stale    int // devices
	placed   int // processes
	unplaced int
	err      error // why a process could not be located
}

// NewProcesses returns a Processes for the sources on a board of process collectors. It calls onChange after each poll;
// onChange must not block.
func NewProcesses(board *view.Board, onChange func(), log *zap.Logger) *Processes {
	p := &Processes{
		Health: kube.NewHealth(MappingProcesses, log, ReasonNoHostPID, ReasonNoProc, ReasonNoSource, ReasonStale, ReasonUnplaced),
		board:  board, onChange: onChange, log: log.Named("process"), locations: newLocations("/proc"),
	}
	p.usage.Store(&Usage{})
	return p
}

// Snapshot returns the newest Usage, never nil. It does not wait.
func (p *Processes) Snapshot() *Usage { return p.usage.Load() }

// On returns the processes on a device; nil if unknown. It polls if the last poll is too old.
func (p *Processes) On(device string, now time.Time) []Process {
	if now.Sub(p.Snapshot().Time).Abs() >= processListAge {
		p.poll(now)
	}
	return p.Snapshot().Devices[device].Processes
}

// Run polls until ctx ends, and returns nil.
func (p *Processes) Run(ctx context.Context) error {
	return view.Every(ctx, processPeriod, p.poll)
}

// poll reads the newest rows and publishes the result. If two sources have a sample of a device, the first on the board
// counts.
func (p *Processes) poll(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.pidSpace == "" {
		p.pidSpace, p.locations.own, err = p.locations.proc.self()
	}
	if v := p.board.Load(); v != p.view {
		p.follow(v)
	}
	next := &Usage{Time: now, Devices: map[string]DeviceUse{}}
	var o outcome
	for _, s := range p.sources {
		if !s.Ring.Latest(&s.row) {
			continue
		}
		for i := range s.Devices {
			id, sampled := s.Devices[i].ID, time.Unix(0, s.row.Stamps[i])
			_, done := next.Devices[id]
			switch {
			case done || s.blocks[i] < 0 || s.row.Stamps[i] == 0:
			case now.Sub(sampled) > processMaxAge:
				o.stale++
			default:
				next.Devices[id] = p.device(s.row.Cells[s.blocks[i]:][:collector.ProcessWidth], sampled, now, &o)
			}
		}
	}
	l := p.locations
	maps.DeleteFunc(l.known, func(_ int, k *located) bool { return k.round != l.round }) // that no sample has had since
	l.round++
	p.usage.Store(next)
	p.report(err, len(next.Devices), o)
	p.onChange()
}

func (p *Processes) follow(v *view.View) {
	p.view, p.sources = v, nil
	for _, s := range v.Sources {
		blocks, err := collector.ProcessBlocks(len(s.Devices), s.Columns)
		if err != nil {
			p.log.Error("skipping an invalid source of processes", zap.String("collector", s.Collector), zap.Error(err))
			continue
		}
		p.sources = append(p.sources, &processSource{Source: s, blocks: blocks})
	}
}

// device locates the processes in a device's block of a row.
func (p *Processes) device(block []float64, sampled, now time.Time, o *outcome) DeviceUse {
	list, count := collector.GetProcesses(nil, block)
	located := p.pidSpace == firstPIDNamespace
	use := DeviceUse{Time: sampled, Complete: located && count == len(list), Partial: count != len(list)}
	for _, process := range list {
		one := Process{Process: process}
		if located {
			at, err := p.locations.find(process.PID, sampled, now)
			if err == nil {
				one.Name, one.PodUID, one.Job = at.name, at.pod, at.job
				if at.unknown {
					err = errInside
				}
			}
			if err == nil {
				o.placed++
			} else {
				use.Complete = false
				o.unplaced++
				o.err = fmt.Errorf("find the pod of process %d: %w", process.PID, err)
			}
		}
		use.Processes = append(use.Processes, one)
	}
	return use
}

// errInside is the error for a process in our own container, seen from inside our own cgroup namespace.
var errInside = errors.New("it is in our own control group or below it, whose pod is hidden inside our cgroup namespace")

// report reports the result of a poll that found recent samples of so many devices.
func (p *Processes) report(err error, devices int, o outcome) {
	if o.unplaced == 0 {
		p.unplaced = 0
	} else if p.unplaced++; p.unplaced == processPatience && o.placed > 0 {
		p.log.Warn("cannot find the pods of some GPU processes; the users of these devices are incomplete",
			zap.Int("processes", o.unplaced), zap.Error(o.err))
	}
	switch {
	case err != nil:
		p.Health.Failed(ReasonNoProc, err)
	case p.pidSpace != firstPIDNamespace:
		p.Health.Failed(ReasonNoHostPID, fmt.Errorf("the driver numbers processes in the machine's PID namespace, and this process is in another one, %s: "+
			"set hostPID: true for the pod, or --pid=host for the container", p.pidSpace))
	case len(p.sources) == 0:
		p.Health.Failed(ReasonNoSource, errors.New("no collector reports which processes use the GPUs"))
	case devices == 0:
		p.Health.Failed(ReasonStale, fmt.Errorf("no device reported its processes within the last %s, %d did before", processMaxAge, o.stale))
	case p.unplaced >= processPatience && o.placed == 0:
		p.Health.Failed(ReasonUnplaced, fmt.Errorf("none of the %d processes on the GPUs can be located (is /proc mounted with hidepid?), one of them: %w", o.unplaced, o.err))
	default:
		p.Health.Succeeded(len(p.locations.known))
		p.Health.Counted(ReasonUnplaced, o.unplaced)
	}
}
