package rocm

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"warpgauge/collectors/rocm/internal/native"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
)

// maxSMIDevices bounds how many devices of the library are asked for their
// address, whatever count it returns.
const maxSMIDevices = 256

// smi is a started librocm_smi64. Its list of GPUs is that of the last rsmi_init:
// indices never shift before the next one, which is that of another collector.
type smi struct {
	*native.Caller
	lib   *native.Library
	index map[string]uint32 // by PCI address
}

// startSMI loads and starts the library; close ends it. It waits for rsmi_init,
// which takes seconds if another process holds a lock and may hang.
// Errors: collector.ErrNotBuiltIn, collector.ErrNotLoaded, smiStatusError, wrapped.
func startSMI(library string) (*smi, error) {
	names := libraryNames(library, "/opt", smiSonames(), "lib", "lib64")
	lib, err := native.Load(names, smiFunctions)
	if err != nil {
		return nil, notLoaded("ROCm SMI", names, err)
	}
	s := &smi{Caller: lib.NewCaller(), lib: lib}
	started := make(chan error)
	go func() {
		// After an error the thread ends with this goroutine: it may own device
		// locks, and the kernel gives those of an ended thread to the next that asks.
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

// start calls rsmi_init and lists the GPUs. Libraries with locks in /dev/shm keep,
// on the thread that ran it, the lock of each GPU whose last holder was killed, and
// all other threads would wait for it without end; rsmi_shut_down on that thread
// releases them, and the second rsmi_init finds them sound.
func (s *smi) start() error {
	// RSMI_INIT_FLAG_THRAD_ONLY_MUTEX: locks that other processes do not see, so
	// that none of theirs, alive or dead, can hold up ours.
	const threadOnly = 0x400000000000000
	if smiThreadLocks(s.lib.Path()) {
		if err := s.init(threadOnly); err != nil {
			return err
		}
		return s.list()
	}
	if err := s.init(0); err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	if err := s.init(0); err != nil {
		return err
	}
	return s.list()
}

// init is rsmi_init, which may take seconds, or hang. It adds the causes of the one status that has several.
func (s *smi) init(flags uint64) error {
	status := smiStatus(s.Call(smiInit, flags))
	err := smiFailed(smiInit, status)
	if status != smiInitError {
		return err
	}
	return fmt.Errorf("%w: it finds no GPU with the amdgpu driver, or cannot write to /dev/shm, or another process holds a lock there (rocm_smi_*)", err)
}

// list asks which GPU each index means. Of two indices for one address the first
// counts.
func (s *smi) list() error {
	out := native.New[[2]uint64]()
	defer native.Free(out)
	if status := smiStatus(s.Call(smiNumDevices, native.Address(out))); status != smiSuccess {
		return errors.Join(smiFailed(smiNumDevices, status), s.close())
	}
	s.index = map[string]uint32{}
	for i := range min(uint32(out[0]), maxSMIDevices) {
		if smiCall(s.Caller, i, smiAsk{function: smiPCIID}, out) != smiSuccess {
			continue // it left while the list was made
		}
		if pci, part := splitPCIID(out[0]); part == 0 {
			if _, ok := s.index[pci]; !ok {
				s.index[pci] = i
			}
		}
	}
	return nil
}

// splitPCIID takes an rsmi_dev_pci_id_get apart: domain in bits 63:32, partition
// in 31:28, bus in 15:8, device in 7:3, function in 2:0.
func splitPCIID(id uint64) (pci string, partition int) {
	return fmt.Sprintf("%04x:%02x:%02x.%x", id>>32, id>>8&0xff, id>>3&0x1f, id&7), int(id >> 28 & 0xf)
}

// close is rsmi_shut_down. All readers must be closed.
func (s *smi) close() error { return smiFailed(smiShutDown, smiStatus(s.Call(smiShutDown))) }

// smiReader reads one GPU: through the library what that is asked for and the
// driver has a file of, the rest from files.
type smiReader struct {
	*native.Caller
	files   *sysfs.Handle
	device  uint32
	sensors string // directory of the sensors that the library reads

	has   []bool
	cells []smiCell
	rest  []bool // due ones that are read from files
	out   *[2]uint64
}

// smiCell is a reading that is asked of the library.
type smiCell struct {
	cell    int
	reading sysfs.Reading
	ask     smiAsk
}

var _ collector.CallMeter = (*smiReader)(nil)

// open returns a reader of the GPU, false if the library does not list it.
func (s *smi) open(files *sysfs.Handle, g *sysfs.GPU, wanted []sysfs.Reading) (*smiReader, bool) {
	device, ok := s.index[g.PCI]
	if !ok {
		return nil, false
	}
	r := &smiReader{Caller: s.lib.NewCaller(), files: files, device: device, has: files.Has(), rest: make([]bool, len(wanted)), out: native.New[[2]uint64]()}
	// A function for a sensor that is not there follows a null pointer before
	// ROCm 6: only readings that have a file are asked for.
	r.sensors = files.Sensors()
	for i, w := range wanted {
		if ask, ok := smiAskFor(w); ok && r.has[i] && s.lib.Has(ask.function) {
			r.cells = append(r.cells, smiCell{i, w, ask})
		}
	}
	return r, true
}

// Has is that of the files: the library reads nothing else.
func (r *smiReader) Has() []bool { return r.has }

// Read reads files, then calls the library. A call that does not return stalls
// Read, and nothing else.
// Errors: collector.ErrDeviceLost; collector.ErrColumnsChanged if the GPU's sensors
// have got another number, which the library only finds when it is started again.
// Due cells are NaN then.
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
		err = collector.ErrDeviceLost
	}
	if err == nil {
		return nil
	}
	for i := range due {
		if due[i] {
			values[i] = math.NaN()
		}
	}
	return err
}

// ask makes the calls that are due and reports whether one of them succeeded, or
// none was made.
func (r *smiReader) ask(values []float64, due []bool) bool {
	asked, answered := false, false
	for i := range r.cells {
		c := &r.cells[i]
		if !due[c.cell] {
			continue
		}
		status := smiCall(r.Caller, r.device, c.ask, r.out)
		asked, answered = true, answered || status == smiSuccess
		values[c.cell] = c.value(status, r.out)
	}
	if asked && !answered {
		_ = r.files.Close() // the next Read finds out where sensors are now; Close never fails
	}
	return answered || !asked
}

// value converts an output to the reading, NaN if it has none.
func (c *smiCell) value(status smiStatus, out *[2]uint64) float64 {
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

// Close closes the files. Nothing is read after it.
func (r *smiReader) Close() error {
	native.Free(r.out)
	r.out = nil
	return r.files.Close()
}
