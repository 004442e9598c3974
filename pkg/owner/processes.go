package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// Usage holds the users of each device at the last poll. It is immutable.
type Usage struct {
	Time    time.Time            // of the poll; zero before the first
	Devices map[string]DeviceUse // by collector.Device.ID: a GPU, or the instance if the library reports per instance
}

// DeviceUse holds the users of a device. A device is missing if no library reports its processes, or if the report is
// too old.
type DeviceUse struct {
	Time time.Time // of the sample
	// Complete means that every process that the library counts on the device is listed and located. Only then does a
	// container missing from Users have no process on the device.
	Complete bool
	// Users is sorted, one per container, job or pod. A User without container, job and pod sums the processes outside
	// of them.
	Users []User
}

// User sums the processes of one container on one device.
type User struct {
	PodUID      string // as in the control group: for a static pod, the hash in its annotation kubernetes.io/config.hash
	ContainerID string // 64 hexadecimal digits; empty outside containers, and if it could not be read
	Job         string // Slurm's job number, "1234"; empty outside jobs
	Processes   int
	// SM and Memory are sums over the processes, in percent of the device and bytes. NaN if the library does not report
	// the value or may not list all processes, because the sum could be too small.
	SM     float64
	Memory float64
}

// MappingProcesses is the label mapping of processes.
const MappingProcesses = "processes"

// Reasons why the containers of processes are unknown.
const (
	ReasonNoHostPID = "no_host_pid" // we have our own PID namespace
	ReasonNoProc    = "no_proc"     // /proc cannot be read
	ReasonNoSource  = "no_source"   // no collector reports processes
	ReasonStale     = "stale"       // the collectors' reports are too old
	ReasonUnplaced  = "unplaced"    // listed processes are not in /proc, or their control groups cannot be read
)

const (
	processPeriod   = time.Second
	processMaxAge   = 10 * time.Second // a device with an older sample is omitted
	processPatience = 3                // consecutive polls with unlocated processes before a warning: some processes end between a sample and the poll
)

// Processes determines which containers use each device, and how much of it: it follows the rows of the process
// collectors (pkg/collector) and finds the pod, the container and the batch job of each process by its control group in
// /proc.
//
// That needs the machine's PID namespace (hostPID: true), because drivers number processes in it, and newer NVIDIA
// drivers hide processes of other namespaces. In another namespace nothing is attributed and no device is complete.
type Processes struct {
	Health *kube.Health

	onChange func()
	usage    atomic.Pointer[Usage]

	// Used by Run's goroutine only.
	processReader
	unplaced int // consecutive polls with unlocated processes
}

// outcome counts the results of a poll.
type outcome struct {
	devices  int // fresh ones
	stale    int
	placed   int // processes
	unplaced int
	err      error // why a process could not be located
}

// processReader reads the newest rows of process collectors, and where the processes run. It belongs to one goroutine at a
// time.
type processReader struct {
	board     *view.Board
	log       *zap.Logger
	view      *view.View
	sources   []*processSource
	list      []collector.Process
	locations *locations
	pidSpace  string // our PID namespace; empty until it could be read
}

func newProcessReader(board *view.Board, log *zap.Logger) processReader {
	return processReader{board: board, log: log, locations: newLocations("/proc")}
}

// processSource is a source on the board.
type processSource struct {
	*view.Source
	blocks []int // where the block of each device begins in a row
	row    view.Row
}

// each calls f for each device with a recent sample. list holds the listed processes and is valid until f returns;
// count is the number that the library reports. If two sources have a sample, the first on the board counts. each
// returns the number of devices whose sample is too old, and the error of reading our namespace.
func (r *processReader) each(now time.Time, f func(id string, list []collector.Process, count int, sampled time.Time)) (stale int, err error) {
	if r.pidSpace == "" {
		r.pidSpace, r.locations.own, err = r.locations.proc.self()
	}
	if v := r.board.Load(); v != r.view {
		r.follow(v)
	}
	done := map[string]bool{}
	for _, s := range r.sources {
		if !s.Ring.Latest(&s.row) {
			continue
		}
		for i := range s.Devices {
			id, sampled := s.Devices[i].ID, time.Unix(0, s.row.Stamps[i])
			switch {
			case done[id] || s.blocks[i] < 0 || s.row.Stamps[i] == 0:
			case now.Sub(sampled) > processMaxAge:
				stale++
			default:
				done[id] = true
				var count int
				r.list, count = collector.GetProcesses(r.list[:0], s.row.Cells[s.blocks[i]:][:collector.ProcessWidth])
				f(id, r.list, count, sampled)
			}
		}
	}
	r.locations.forget()
	return stale, err
}

func (r *processReader) follow(v *view.View) {
	r.view, r.sources = v, nil
	for _, s := range v.Sources {
		blocks, err := collector.ProcessBlocks(len(s.Devices), s.Columns)
		if err != nil {
			r.log.Error("skipping an invalid source of processes", zap.String("collector", s.Collector), zap.Error(err))
			continue
		}
		r.sources = append(r.sources, &processSource{Source: s, blocks: blocks})
	}
}

// NewProcesses returns a Processes for the sources on a board of process collectors. It calls onChange after each poll;
// onChange must not block.
func NewProcesses(board *view.Board, onChange func(), log *zap.Logger) *Processes {
	p := &Processes{
		Health:   kube.NewHealth(MappingProcesses, log, ReasonNoHostPID, ReasonNoProc, ReasonNoSource, ReasonStale, ReasonUnplaced),
		onChange: onChange, processReader: newProcessReader(board, log.Named("process")),
	}
	p.usage.Store(&Usage{})
	return p
}

// Snapshot returns the newest Usage, never nil. It does not wait.
func (p *Processes) Snapshot() *Usage { return p.usage.Load() }

// Run polls until ctx ends, and returns nil. It may be called once.
func (p *Processes) Run(ctx context.Context) error {
	ticker := time.NewTicker(processPeriod)
	defer ticker.Stop()
	for {
		p.poll(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// poll reads the newest rows and publishes the result.
func (p *Processes) poll(now time.Time) {
	next := &Usage{Time: now, Devices: map[string]DeviceUse{}}
	var o outcome
	var err error
	o.stale, err = p.each(now, func(id string, list []collector.Process, count int, sampled time.Time) {
		o.devices++
		next.Devices[id] = p.device(list, count, sampled, now, &o)
	})
	p.usage.Store(next)
	p.report(err, o)
	p.onChange()
}

// device sums the processes of one device.
func (p *Processes) device(list []collector.Process, count int, sampled, now time.Time, o *outcome) DeviceUse {
	use := DeviceUse{Time: sampled}
	if p.pidSpace != firstPIDNamespace {
		return use
	}
	use.Complete = count == len(list)
	for _, process := range list {
		at, err := p.locations.find(process.PID, sampled.UnixNano(), now)
		if err == nil && at.unknown {
			err = errInside
		}
		if err != nil {
			use.Complete = false
			o.unplaced++
			o.err = fmt.Errorf("find container of process %d: %w", process.PID, err)
			continue
		}
		o.placed++
		u := use.user(at)
		u.Processes++
		u.SM += process.Busy // NaN makes the sum NaN
		u.Memory += process.Memory
	}
	if count != len(list) {
		for i := range use.Users { // the sums may lack processes
			use.Users[i].SM, use.Users[i].Memory = math.NaN(), math.NaN()
		}
	}
	slices.SortFunc(use.Users, func(a, b User) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.Job, b.Job))
	})
	return use
}

// user returns the user at a location and creates it if needed.
func (d *DeviceUse) user(at *location) *User {
	for i := range d.Users {
		if u := &d.Users[i]; u.ContainerID == at.container && u.PodUID == at.pod && u.Job == at.job {
			return u
		}
	}
	d.Users = append(d.Users, User{PodUID: at.pod, ContainerID: at.container, Job: at.job})
	return &d.Users[len(d.Users)-1]
}

// errInside is the error for a process in our own container, seen from inside our own cgroup namespace.
var errInside = errors.New("it is in our own control group or below it, whose pod is hidden inside our cgroup namespace")

// report reports the result of a poll.
func (p *Processes) report(err error, o outcome) {
	if o.unplaced == 0 {
		p.unplaced = 0
	} else if p.unplaced++; p.unplaced == processPatience && o.placed > 0 {
		p.log.Warn("cannot find the containers of some GPU processes; the users of these devices are incomplete",
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
	case o.devices == 0:
		p.Health.Failed(ReasonStale, fmt.Errorf("no device reported its processes within the last %s, %d did before", processMaxAge, o.stale))
	case p.unplaced >= processPatience && o.placed == 0:
		p.Health.Failed(ReasonUnplaced, fmt.Errorf("none of the %d processes on the GPUs can be located (is /proc mounted with hidepid?), one of them: %w", o.unplaced, o.err))
	default:
		p.Health.Succeeded(len(p.locations.known))
		p.Health.Counted(ReasonUnplaced, o.unplaced)
	}
}

// sameValue compares readings; NaN equals NaN.
func sameValue(a, b float64) bool { return a == b || a != a && b != b }
