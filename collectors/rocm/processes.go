package rocm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Names of the collectors of GPUs and of the processes on them.
const (
	Name          = "rocm"
	ProcessesName = "rocm-processes"
)

// Processes lists the processes on AMD GPUs. It reads KFD's files in /sys for every Options.Source, because ROCm SMI
// reads the same files. Its devices have the same IDs as in Collector.
type Processes struct {
	machine
	sources []*processSource
}

var (
	_ collector.Collector = (*Processes)(nil)
	_ collector.Rescanner = (*Processes)(nil)
	_ collector.Limited   = (*Processes)(nil)
)

// NewProcesses returns an unopened collector and touches nothing.
func NewProcesses(o Options) *Processes {
	if o.Log != nil {
		o.Log = o.Log.With(zap.String("collector", ProcessesName))
	}
	return &Processes{machine: newMachine(o)}
}

// Name is "rocm-processes".
func (*Processes) Name() string { return ProcessesName }

// Open finds the GPUs. It returns one source per GPU with its partitions. A source has the columns of
// collector.AppendProcessColumns for every list. Errors: those of Collector.Open, and collector.ErrNothingToRead if KFD
// serves no GPU.
func (c *Processes) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	found, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	gpus := found.GPUs
	var out []collector.Source
	columns := 0
	for i := range gpus {
		s := c.source(node{i, len(gpus)}, &gpus[i])
		c.sources, out = append(c.sources, s), append(out, s)
		columns += len(s.columns)
	}
	if columns == 0 {
		return nil, errors.Join(fmt.Errorf("look for processes on AMD GPUs: %w: KFD serves none of %d GPUs", collector.ErrNothingToRead, len(gpus)), c.Close())
	}
	return out, nil
}

// Close closes all files.
func (c *Processes) Close() error {
	for _, s := range c.sources {
		s.list.Close()
	}
	c.sources = nil
	return nil
}

// processSource lists the processes on one GPU.
type processSource struct {
	devices []collector.Device
	columns []collector.Column
	units   []int // compute units of each instance; 0 if unknown
	list    *sysfs.ProcessList
	log     *zap.Logger
	said    state

	room []collector.Process
	cost collector.Meter // of reading KFD's files
}

var (
	_ collector.Source    = (*processSource)(nil)
	_ collector.CallMeter = (*processSource)(nil)
)

// source returns the source of a GPU. If the GPU has several partitions, only they list processes, not the board.
func (c *Processes) source(n node, g *sysfs.GPU) *processSource {
	board := n.board(g)
	s := &processSource{
		devices: []collector.Device{board}, list: c.files.Processes(g),
		log: c.o.Log.With(zap.String("device", board.ID)), cost: collector.Meter{Call: "kfd/proc"},
	}
	for i, inst := range g.Instances {
		device := 0
		if g.Partitioned() {
			device = 1 + i
			s.devices = append(s.devices, instance(board, g, inst))
		}
		s.columns = collector.AppendProcessColumns(s.columns, device)
		s.units = append(s.units, inst.Units)
	}
	return s
}

func (s *processSource) Devices() []collector.Device { return s.devices }
func (s *processSource) Columns() []collector.Column { return s.columns }

// Sample lists the processes. Its allocations grow with their number. Errors: collector.ErrDeviceLost, or a system error.
func (s *processSource) Sample(row []float64, due []bool) error {
	begin := s.cost.Begin()
	err := s.list.Scan(true)
	s.cost.Record(1, begin)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, sysfs.ErrTooMany) {
		return ofDevice(err)
	}
	problem := err
	for i := range s.units {
		at := i * collector.ProcessWidth
		if !due[at] {
			continue
		}
		block := row[at : at+collector.ProcessWidth]
		if err != nil {
			collector.BlankProcesses(block)
		} else if !s.put(block, i) {
			problem = errUnseen
		}
	}
	s.said.log(s.log, zap.InfoLevel, "cannot list processes", "listing processes again", problem)
	return nil
}

var errUnseen = errors.New("the kernel does not let this process see all: its control group may not use the device")

// put writes the processes on an instance and reports whether the list is complete.
func (s *processSource) put(block []float64, instance int) (whole bool) {
	found, whole := s.list.Of(instance)
	s.room = s.room[:0]
	for _, p := range found {
		s.room = append(s.room, collector.Process{
			PID: p.PID, Memory: p.Memory, Busy: occupancy(p.Units, s.units[instance]), Flags: collector.ProcessCompute | collector.ProcessOccupancy,
		})
	}
	count := len(found)
	if !whole {
		count = -1
	}
	collector.PutProcesses(block, count, s.room)
	return whole
}

// occupancy returns the occupied share of the compute units in percent. The driver rounds its count up.
func occupancy(units float64, of int) float64 {
	if of <= 0 {
		return math.NaN()
	}
	return min(units/float64(of)*100, 100)
}

// Calls implements collector.CallMeter.
func (s *processSource) Calls() []collector.CallCost { return []collector.CallCost{s.cost.Cost()} }
