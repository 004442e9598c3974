package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/pkg/collector"
)

// bufferSize is more than any file that is read whole: sysfs prints at most a
// page, which amdgpu's texts do not fill where pages are larger than 4 KiB.
const bufferSize = 16 << 10

// renameAfter is how long the names of files hold, whatever the files answer. A
// driver that says "no such device" of one file for ever costs no more than this.
const renameAfter = time.Second

// handle reads one GPU. Where reading says that the GPU has gone, the next call
// looks whether it is there and opens everything anew: its sensors may have
// other numbers then.
type handle struct {
	r      *Reader
	gpu    raw.GPU
	wanted []raw.Reading
	dir    string

	values    []valueFile
	ras       []rasFile
	pages     pageCells
	processes processCells
	instances []instanceCell

	status  status
	metrics File
	refused error // gpu_metrics has an unknown revision, that of header
	header  gpumetrics.Header

	buf   []byte
	now   time.Time
	named time.Time // when the files got their names; zero: they have none
	gone  bool      // a file answered as those of a removed device do
}

var _ raw.Files = (*handle)(nil)

func newHandle(r *Reader, g *raw.GPU, wanted []raw.Reading) *handle {
	h := &handle{
		r: r, gpu: *g, wanted: wanted, dir: r.path("bus/pci/devices/" + g.PCI),
		buf: make([]byte, bufferSize), metrics: NewFile(""),
	}
	h.pages.file = NewFile("")
	if !exists(h.dir) { // a /sys of which not everything was passed to a container
		h.dir = g.Path
	}
	h.status.file = NewFile(filepath.Join(h.dir, "power/runtime_status"))
	for i, w := range wanted {
		switch w.Kind {
		case raw.Correctable, raw.Uncorrectable, raw.Deferred:
			h.addRAS(w, i)
		case raw.BadPages:
			h.pages.add(w, i)
		case raw.Processes, raw.ProcessMemory, raw.ProcessUnits:
			h.processes.add(g, w, i)
		case raw.InstanceTotal:
			h.addInstance(w, i)
		default:
			h.addValue(w, i)
		}
	}
	return h
}

// Has looks which files are there. Reading none wakes no board.
func (h *handle) Has() []bool {
	has := make([]bool, len(h.wanted))
	h.now = h.r.o.Now()
	if h.look() != nil {
		return has
	}
	for _, f := range h.values {
		for _, c := range f.cells {
			has[c.cell] = f.file.path != "" && exists(f.file.path)
		}
	}
	for _, f := range h.ras {
		for _, i := range f.cells {
			if i >= 0 {
				has[i] = exists(f.file.path)
			}
		}
	}
	h.pages.has(has)
	h.processes.has(h.r, has)
	for _, c := range h.instances {
		_, has[c.cell] = frameBuffer(h.r.nodeDir(c.node))
	}
	return has
}

// Read reads every due file once.
func (h *handle) Read(values []float64, due []bool) error {
	h.now = h.r.o.Now()
	blank(values, due)
	if err := h.prepare(); err != nil {
		return err
	}
	h.readValues(values, due)
	h.readRAS(values, due)
	h.readPages(values, due)
	h.readProcesses(values, due)
	h.readInstances(values, due)
	if !h.gone {
		return nil
	}
	err := h.look()
	if err != nil {
		blank(values, due)
	}
	return err
}

func blank(values []float64, due []bool) {
	for i, d := range due {
		if d {
			values[i] = math.NaN()
		}
	}
}

// prepare makes sure that files have names.
func (h *handle) prepare() error {
	if h.gone || h.named.IsZero() {
		return h.look()
	}
	return nil
}

// read reads a text and notes what says that the GPU is gone.
func (h *handle) read(f *File) ([]byte, error) {
	if f.path == "" {
		return nil, ErrAbsent
	}
	looked := f.again
	text, err := f.Read(h.buf, h.now)
	if errors.Is(err, ErrGone) || errors.Is(err, ErrAbsent) && f.again != looked && !h.there() {
		h.gone = true
	}
	return text, err
}

// there looks for the device itself. Where files that were named but never open
// are missing, it may have gone before anybody opened one.
func (h *handle) there() bool { return exists(filepath.Join(h.dir, "vendor")) }

// Suspended asks the power management of PCI, which answers from memory. It may
// run beside everything else.
func (h *handle) Suspended() bool { return h.status.suspended(h.r.o.Now()) }

// Metrics reads gpu_metrics.
func (h *handle) Metrics(m *gpumetrics.Metrics) error {
	m.Reset()
	h.now = h.r.o.Now()
	if err := h.prepare(); err != nil {
		return err
	}
	looked := h.metrics.again
	n, err := h.metrics.ReadAt(h.buf, 0, h.now)
	switch {
	case errors.Is(err, ErrGone):
		h.gone = true
		if err := h.look(); err != nil {
			return err
		}
		return ErrGone
	case errors.Is(err, ErrAbsent) && h.metrics.again != looked && !h.there():
		return h.look()
	case errors.Is(err, ErrAbsent):
		return fs.ErrNotExist
	case err != nil:
		return err
	}
	return h.decode(h.buf[:n], m)
}

// decode tells an unknown revision once, not at each tick.
func (h *handle) decode(file []byte, m *gpumetrics.Metrics) error {
	err := h.r.decoder.Decode(file, m)
	if !errors.Is(err, gpumetrics.ErrRevision) {
		return err
	}
	if header, e := gpumetrics.ReadHeader(file); e == nil && (h.refused == nil || header != h.header) {
		h.header = header
		h.refused = fmt.Errorf("decode revision %d.%d with %d bytes: %w", header.Format, header.Content, header.Size, err)
		h.warn("gpu_metrics is not read", h.refused)
	}
	return h.refused
}

// Bus reads pcie_bw. It has a file and a buffer of its own, as it runs beside
// everything else for a second.
func (h *handle) Bus() (sent, received float64, err error) {
	var buf [128]byte
	f := NewFile(filepath.Join(h.dir, "pcie_bw"))
	defer f.Close()
	text, err := f.Read(buf[:], time.Time{})
	if errors.Is(err, ErrAbsent) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return math.NaN(), math.NaN(), err
	}
	sent, received, ok := ParseThroughput(text)
	if !ok {
		return math.NaN(), math.NaN(), errText
	}
	return sent, received, nil
}

var errText = errors.New("text is not of the known form")

// HasBus looks whether there is pcie_bw.
func (h *handle) HasBus() bool { return exists(filepath.Join(h.dir, "pcie_bw")) }

// Close closes all files.
func (h *handle) Close() error {
	for i := range h.values {
		h.values[i].file.Forget()
	}
	for i := range h.ras {
		h.ras[i].file.Forget()
	}
	h.status.close()
	h.metrics.Forget()
	h.pages.file.Forget()
	h.named = time.Time{}
	return nil
}

// lost is ErrDeviceLost with the device.
func (h *handle) lost() error {
	return fmt.Errorf("read gpu %s: %w", h.gpu.PCI, collector.ErrDeviceLost)
}
