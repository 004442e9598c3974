package rocm

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
)

// maxSMIDevices bounds the number of devices whose address is queried, whatever number the library returns.
const maxSMIDevices = 256

// rocmSMI is a started librocm_smi64. Its indexes are fixed until the next rsmi_init.
type rocmSMI struct {
	*caller
	index map[string]uint32 // by PCI address
}

// startSMI loads and starts the library. It waits for rsmi_init, which takes seconds if another process holds a lock and
// may hang. Errors: collector.ErrNotBuiltIn, collector.ErrNotLoaded, statusError, wrapped.
func startSMI(library string) (*rocmSMI, error) {
	c, err := openLibrary(&smiAPI, library)
	if err != nil {
		return nil, err
	}
	s := &rocmSMI{caller: c}
	started := make(chan error)
	go func() {
		// After an error the thread ends with this goroutine: it may own device locks, and the kernel passes the locks
		// of an ended thread to the next waiter.
		runtime.LockOSThread()
		err := s.start()
		if err == nil {
			runtime.UnlockOSThread()
		}
		started <- err
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return s, nil
}

// start calls rsmi_init and lists the GPUs. In libraries with locks in /dev/shm, rsmi_init acquires the lock of each GPU
// whose last holder was killed, and all other threads would wait for it for ever. rsmi_shut_down on the same thread
// releases these locks, and then the second rsmi_init finds them free.
func (s *rocmSMI) start() error {
	// RSMI_INIT_FLAG_THRAD_ONLY_MUTEX makes locks within this process, so that no other process, alive or dead, can block it.
	const threadOnly = 0x400000000000000
	flags := uint64(threadOnly)
	if !smiThreadLocks(s.Path()) {
		flags = 0
		if err := s.init(flags); err != nil {
			return err
		}
		if err := s.close(); err != nil {
			return err
		}
	}
	if err := s.init(flags); err != nil {
		return err
	}
	return s.list()
}

// init calls rsmi_init, which may take seconds or hang. It explains the status that has several causes.
func (s *rocmSMI) init(flags uint64) error {
	err := s.Must(smiInit, flags)
	if !errors.Is(err, statusError{API: &smiAPI, Code: smiInitError}) {
		return err
	}
	return fmt.Errorf("%w: it finds no GPU with the amdgpu driver, or cannot write to /dev/shm, or another process holds a lock there (rocm_smi_*)", err)
}

// list maps PCI addresses to indexes. If two indexes have the same address, the first counts.
func (s *rocmSMI) list() error {
	out := cNew[[2]uint64]()
	defer cFree(out)
	if err := s.Must(smiNumDevices, addressOf(out)); err != nil {
		return errors.Join(err, s.close())
	}
	s.index = map[string]uint32{}
	for i := range min(uint32(out[0]), maxSMIDevices) {
		if smiCall(s.caller, i, smiAsk{function: smiPCIID}, out) != smiSuccess {
			continue // it was removed in the meantime
		}
		// Domain in bits 63:32, partition in 31:28, bus in 15:8, device in 7:3, function in 2:0.
		pci, partition := pciOf(out[0]>>32, out[0]), out[0]>>28&0xf
		if _, ok := s.index[pci]; !ok && partition == 0 {
			s.index[pci] = i
		}
	}
	return nil
}

// close calls rsmi_shut_down. All readers must be closed first.
func (s *rocmSMI) close() error { return s.Must(smiShutDown) }

// smiReader reads one GPU. It uses the library for readings that smiAskFor allows and that have a file, and reads the
// rest from files.
type smiReader struct {
	*caller
	files   *sysfs.Handle
	device  uint32
	sensors string // the library's directory of sensors

	cells []smiCell
	rest  []bool // due readings that come from files
	out   *[2]uint64
}

// smiCell is a reading that comes from the library.
type smiCell struct {
	cell    int
	reading sysfs.Reading
	ask     smiAsk
}

var _ collector.CallMeter = (*smiReader)(nil)

// open returns a reader of the GPU, or false if the library does not list the GPU.
func (s *rocmSMI) open(files *sysfs.Handle, g *sysfs.GPU, wanted []sysfs.Reading) (*smiReader, bool) {
	device, ok := s.index[g.PCI]
	if !ok {
		return nil, false
	}
	r := &smiReader{caller: s.newCaller(), files: files, device: device, rest: make([]bool, len(wanted)), out: cNew[[2]uint64]()}
	// Before ROCm 6 a function for a missing sensor dereferences a null pointer, so only readings with a file use the library.
	has, _ := files.Probe()
	r.sensors = files.Sensors()
	for i, w := range wanted {
		if ask, ok := smiAskFor(w); ok && has[i] && s.Has(ask.function) {
			r.cells = append(r.cells, smiCell{i, w, ask})
		}
	}
	return r, true
}

// Read reads the files, then calls the library. A hanging library call stalls only this Read. After an error due cells
// are NaN. Errors: sysfs.ErrLost, or collector.ErrColumnsChanged if the GPU's sensors have another number,
// which the library does not notice before its next start.
func (r *smiReader) Read(values []float64, due []bool) error {
	copy(r.rest, due)
	for i := range r.cells {
		r.rest[r.cells[i].cell] = false
	}
	err := r.files.Read(values, r.rest)
	if err == nil && r.files.Sensors() != r.sensors {
		err = fmt.Errorf("sensors are at %q, were at %q: %w", r.files.Sensors(), r.sensors, collector.ErrColumnsChanged)
	}
	if err == nil && !r.ask(values, due) && !r.files.Exists() {
		err = sysfs.ErrLost
	}
	if err != nil {
		collector.FillDue(values, due, math.NaN())
	}
	return err
}

// ask makes the due calls. It returns false only if calls were made and all failed.
func (r *smiReader) ask(values []float64, due []bool) bool {
	asked, answered := false, false
	for i := range r.cells {
		c := &r.cells[i]
		if !due[c.cell] {
			continue
		}
		status := smiCall(r.caller, r.device, c.ask, r.out)
		asked, answered = true, answered || status == smiSuccess
		values[c.cell] = c.value(status, r.out)
	}
	if asked && !answered {
		r.files.Close() // the next Read locates the sensors again
	}
	return answered || !asked
}

// value converts an output to the reading, NaN if it is missing.
func (c *smiCell) value(status int32, out *[2]uint64) float64 {
	v := out[0]
	if c.ask.second {
		v = out[1]
	}
	signed := c.ask.function == smiTemperature || c.ask.function == smiVoltage
	if status != smiSuccess || v == smiUnset || !signed && v == math.MaxUint64 {
		return math.NaN()
	}
	if signed {
		return c.reading.Convert(float64(int64(v)))
	}
	return c.reading.Convert(float64(v))
}

// Close closes the files. The reader cannot be used after it.
func (r *smiReader) Close() {
	cFree(r.out)
	r.out = nil
	r.files.Close()
}
