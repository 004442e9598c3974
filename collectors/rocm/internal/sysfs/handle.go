package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"warpgauge/collectors/rocm/internal/gpumetrics"
)

// Errors about a whole GPU.
var (
	ErrLost     = errors.New("gpu is gone")                        // it may come back
	ErrReplaced = errors.New("another gpu is at the same address") // the Handle cannot be used any more
)

// bufferSize exceeds every file that is read whole. sysfs prints at most a page, and amdgpu's texts do not fill a page
// above 4 KiB.
const bufferSize = 16 << 10

// renameAfter is the minimum time between two searches for the paths of files. It limits the cost of a driver that keeps
// returning "no such device" for one file.
const renameAfter = time.Second

// Handle reads one GPU. After a read reports that the GPU is gone, the next call checks whether it exists and opens
// all files again, because its sensors may have other numbers.
type Handle struct {
	r      *Reader
	gpu    GPU
	wanted []Reading
	dir    string

	values []valueFile

	status  status
	metrics File
	parts   []partFile // of partitions, if gpu_metrics is a list

	sensors string // hwmon directory, or ""

	buf   []byte
	pages []byte // list of bad pages
	now   time.Time
	named time.Time // when the files got their paths; zero before that
	gone  bool      // a read returned the error of a removed device
}

// partFile is the metrics file of a partition.
type partFile struct {
	id   int
	file File
}

// Open prepares the wanted readings of a GPU. The first Read opens the files, so that a hanging GPU delays only its own
// source.
func (r *Reader) Open(g *GPU, wanted []Reading) *Handle {
	h := &Handle{
		r: r, gpu: *g, wanted: wanted, dir: r.path("bus/pci/devices/" + g.PCI),
		buf: make([]byte, bufferSize), metrics: NewFile(""),
	}
	if g.Partitioned() {
		for _, i := range g.Instances {
			path := filepath.Join(r.path("class/drm"), i.Render, "device/xcp/xcp_metrics")
			h.parts = append(h.parts, partFile{i.ID, NewFile(path)})
		}
	}
	if !exists(h.dir) { // only a part of /sys is mounted in the container
		h.dir = g.Path
	}
	h.status.file = NewFile(filepath.Join(h.dir, "power/runtime_status"))
	for i, w := range wanted {
		h.addValue(w, i)
	}
	return h
}

// Probe returns for each wanted reading whether it can ever have a value with this board and driver, and whether its file
// exists but this process must not read it. It only checks that files exist, because reading some files would wake the
// board. So an empty file counts.
func (h *Handle) Probe() (has, denied []bool) {
	has, denied = make([]bool, len(h.wanted)), make([]bool, len(h.wanted))
	h.now = h.r.o.Now()
	if h.locate() != nil {
		return has, denied
	}
	for _, file := range h.values {
		for _, c := range file.cells {
			has[c.cell], denied[c.cell] = exists(file.file.path), isDenied(file.file.path)
		}
	}
	return has, denied
}

// MetricsDenied reports whether gpu_metrics exists but this process must not read it. Call Probe first.
func (h *Handle) MetricsDenied() bool { return isDenied(h.metrics.path) }

func isDenied(path string) bool {
	return errors.Is(unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK, unix.AT_EACCESS), syscall.EACCES)
}

// Read stores the due readings in values, with one read per file. Blank, unsupported and torn readings are NaN. Cells
// that are not due stay unchanged. len(values), len(due) and len(wanted) are equal. Errors: ErrLost (the next Read checks
// whether the GPU is back), or ErrReplaced, wrapped. After an error all due cells are NaN.
func (h *Handle) Read(values []float64, due []bool) error {
	h.now = h.r.o.Now()
	blank(values, due)
	if err := h.prepare(); err != nil {
		return err
	}
	h.readValues(values, due)
	if !h.gone {
		return nil
	}
	err := h.locate()
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

// prepare gives the files paths if they have none.
func (h *Handle) prepare() error {
	if h.gone || h.named.IsZero() {
		return h.locate()
	}
	return nil
}

// read reads a file from an offset and records whether the GPU is gone.
func (h *Handle) read(f *File, offset int64) ([]byte, error) {
	if f.path == "" {
		return nil, ErrAbsent
	}
	again := f.again
	text, err := f.Read(h.buf, offset, h.now)
	if errors.Is(err, ErrGone) || errors.Is(err, ErrAbsent) && f.again != again && !h.Exists() {
		h.gone = true
	}
	return text, err
}

// Exists reports whether the device exists. Callers use it when a file that was never open is missing, because the
// device may have gone before the first open.
func (h *Handle) Exists() bool { return exists(filepath.Join(h.dir, "vendor")) }

// locate checks whether the GPU exists and gives its files new paths. Errors: ErrLost, ErrReplaced.
func (h *Handle) locate() error {
	if !h.Exists() {
		h.Close()
		h.gone = true
		return ErrLost
	}
	h.gone = false
	if !h.named.IsZero() && h.now.Sub(h.named) < renameAfter {
		return nil
	}
	h.Close()
	if id := uniqueID(h.dir); id != h.gpu.UniqueID && id != 0 && h.gpu.UniqueID != 0 {
		return fmt.Errorf("read gpu %s: unique id is %016x, was %016x: %w", h.gpu.PCI, id, h.gpu.UniqueID, ErrReplaced)
	}
	h.name()
	h.named = h.now
	return nil
}

// name gives each file its path. The kernel chooses the numbers of hwmon and of its sensors whenever the driver is bound.
func (h *Handle) name() {
	h.sensors = hwmonOf(h.dir)
	numbers := sensorsOf(h.sensors)
	for i := range h.values {
		h.values[i].file = NewFile(h.values[i].path(h.dir, h.sensors, numbers))
	}
	h.metrics = NewFile(filepath.Join(h.dir, "gpu_metrics"))
}

// Sensors returns the current hwmon directory, or "" if the GPU has none.
func (h *Handle) Sensors() string { return h.sensors }

// path returns the file's current path, or "" if it has none.
func (s origin) path(dir, hwmon string, sensors map[string]string) string {
	switch {
	case s.file == "", s.hwmon && hwmon == "", s.sensor != "" && sensors[s.sensor] == "":
		return ""
	case s.sensor != "":
		return filepath.Join(hwmon, strings.Replace(s.file, "N", sensors[s.sensor], 1))
	case s.hwmon:
		return filepath.Join(hwmon, s.file)
	default:
		return filepath.Join(dir, s.file)
	}
}

// hwmonOf returns the directory of the GPU's sensors, or "" if it has none.
func hwmonOf(dir string) string {
	for _, n := range names(filepath.Join(dir, "hwmon")) {
		path := filepath.Join(dir, "hwmon", n)
		if text(path, "name") == "amdgpu" {
			return path
		}
	}
	return ""
}

// sensorsOf maps temperature labels to sensor numbers.
func sensorsOf(hwmon string) map[string]string {
	m := map[string]string{}
	for n := 1; n <= 8 && hwmon != ""; n++ {
		if label := text(hwmon, "temp"+strconv.Itoa(n)+"_label"); label != "" {
			m[label] = strconv.Itoa(n)
		}
	}
	return m
}

// Metrics reads and decodes gpu_metrics. After an error m is empty. Errors: those of package gpumetrics, fs.ErrNotExist
// if the board has no such file, ErrLost, ErrReplaced.
func (h *Handle) Metrics(m *gpumetrics.Metrics) error {
	m.Reset()
	h.now = h.r.o.Now()
	if err := h.prepare(); err != nil {
		return err
	}
	file, err := h.read(&h.metrics, 0)
	if h.gone {
		if err := h.locate(); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, ErrAbsent):
		return fs.ErrNotExist
	case err != nil:
		return err
	}
	return h.decode(file, m)
}

// decode decodes gpu_metrics and, for a divided GPU, the files of its partitions, if it has them. An unreadable partition
// file leaves its partition blank.
func (h *Handle) decode(file []byte, m *gpumetrics.Metrics) error {
	err := h.r.decoder.Decode(file, m)
	if errors.Is(err, gpumetrics.ErrRevision) {
		return h.r.refuse(&h.gpu, h.metrics.path, file)
	}
	if err != nil || !h.gpu.Partitioned() || !m.Listed() {
		return err
	}
	m.ClearPartitions()
	for i := range h.parts {
		p := &h.parts[i]
		file, err := p.file.Read(h.buf, 0, h.now)
		if err == nil {
			err = h.r.decoder.DecodePartition(file, p.id, m)
		}
		if errors.Is(err, gpumetrics.ErrRevision) {
			_ = h.r.refuse(&h.gpu, p.file.path, file) // logged; Metrics counts it
		}
	}
	return nil
}

// refuse returns the error for an unknown revision. It logs each revision once, not per GPU and tick.
func (r *Reader) refuse(g *GPU, path string, file []byte) error {
	header, err := gpumetrics.ReadHeader(file)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused[header] == nil {
		const most = 100 // bounds the memory if a driver invents revisions
		if len(r.refused) == most {
			return gpumetrics.ErrRevision
		}
		r.refused[header] = fmt.Errorf("decode revision %d.%d with %d bytes: %w", header.Format, header.Content, header.Size, gpumetrics.ErrRevision)
		r.o.Log.Warn("unknown revision of gpu_metrics; using hwmon and other files only", zap.String("device", g.PCI),
			zap.String("file", path), zap.Error(r.refused[header]))
	}
	return r.refused[header]
}

// Bus reads pcie_bw and takes a second, because the driver sleeps. It returns bytes per second as packets × maximum
// payload, an upper bound. It has its own file and buffer, so it may run concurrently with every other method. It
// returns NaN and fs.ErrNotExist if the file does not exist.
func (h *Handle) Bus() (sent, received float64, err error) {
	var buf [128]byte
	f := NewFile(filepath.Join(h.dir, "pcie_bw"))
	defer f.Close()
	text, err := f.Read(buf[:], 0, time.Time{})
	if errors.Is(err, ErrAbsent) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return math.NaN(), math.NaN(), err
	}
	sent, received, ok := throughput(text)
	if !ok {
		return math.NaN(), math.NaN(), errText
	}
	return sent, received, nil
}

var errText = errors.New("text is not of the known form")

// HasBus reports whether pcie_bw exists, without reading it.
func (h *Handle) HasBus() bool { return exists(filepath.Join(h.dir, "pcie_bw")) }

// Close closes all files. It may be called twice, but not concurrently with Read.
func (h *Handle) Close() {
	for i := range h.values {
		h.values[i].file.Forget()
	}
	h.status.mu.Lock()
	h.status.file.Forget()
	h.status.mu.Unlock()
	h.metrics.Forget()
	for i := range h.parts {
		h.parts[i].file.Forget()
	}
	h.named = time.Time{}
}

// Suspended reports whether the kernel has suspended the board or is about to. Other states are "unsupported" for a board
// that is never suspended, "active" and "resuming". It reads PCI's power management, which answers from memory. Reading any
// other file would wake the board. It may run concurrently with every other method.
func (h *Handle) Suspended() bool {
	s := &h.status
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := s.file.Read(s.buf[:], 0, h.r.o.Now())
	return err == nil && bytes.HasPrefix(text, []byte("suspend"))
}

// status is the file power/runtime_status. It has its own buffer and lock, because the goroutine of pcie_bw reads it, too.
type status struct {
	mu   sync.Mutex
	file File
	buf  [32]byte
}
