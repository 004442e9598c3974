// Package amdsmi calls libamd_smi for what /sys does not have: records of errors (CPER) with
// AMD's field ids (AFID), violation status, and facts about boards. All calls of a Library
// are made by one goroutine that keeps its thread, as libraries before ROCm 6.1.1 bind locks
// to the thread that starts them.
//
// Structures grow from release to release, without a new soname: layout.go has those of the
// releases that are known, and nothing of another is read. Records are bytes with a format
// of their own (UEFI, appendix N) and are read from every release.
package amdsmi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"warpgauge/collectors/rocm/internal/native"
)

// The functions of the library.
const (
	fnInit = iota
	fnShutDown
	fnVersion
	fnSockets
	fnProcessors
	fnKind
	fnAddress
	fnAddressID
	fnRecords
	fnAFIDs
	fnBoard
	fnVBIOS
	fnVRAM
	fnViolation
	functionCount
)

// functions has the library's names.
var functions = []native.Function{
	fnInit:       {Name: "amdsmi_init", Required: true},
	fnShutDown:   {Name: "amdsmi_shut_down", Required: true},
	fnVersion:    {Name: "amdsmi_get_lib_version"},
	fnSockets:    {Name: "amdsmi_get_socket_handles", Required: true},
	fnProcessors: {Name: "amdsmi_get_processor_handles", Required: true},
	fnKind:       {Name: "amdsmi_get_processor_type", Required: true},
	fnAddress:    {Name: "amdsmi_get_gpu_device_bdf", Required: true},
	fnAddressID:  {Name: "amdsmi_get_gpu_bdf_id"},
	fnRecords:    {Name: "amdsmi_get_gpu_cper_entries"},
	fnAFIDs:      {Name: "amdsmi_get_afids_from_cper"},
	fnBoard:      {Name: "amdsmi_get_gpu_board_info"},
	fnVBIOS:      {Name: "amdsmi_get_gpu_vbios_info"},
	fnVRAM:       {Name: "amdsmi_get_gpu_vram_info"},
	fnViolation:  {Name: "amdsmi_get_violation_status"},
}

// status is amdsmi_status_t.
type status int32

const (
	success     status = 0
	unsupported status = 2
	moreData    status = 39 //nolint:errname // an answer, as in the header
)

func (s status) Error() string {
	name, known := map[status]string{
		1: "INVAL", unsupported: "NOT_SUPPORTED", 3: "NOT_YET_IMPLEMENTED", 4: "FAIL_LOAD_MODULE", 5: "FAIL_LOAD_SYMBOL", 6: "DRM_ERROR", 7: "API_FAILED",
		8: "TIMEOUT", 9: "RETRY", 10: "NO_PERM", 12: "IO", 14: "FILE_ERROR", 15: "OUT_OF_RESOURCES", 16: "INTERNAL_EXCEPTION",
		18: "INIT_ERROR", 30: "BUSY", 31: "NOT_FOUND", 32: "NOT_INIT", 34: "DRIVER_NOT_LOADED", moreData: "MORE_DATA", 40: "NO_DATA", 43: "UNEXPECTED_DATA",
	}[s]
	if known {
		return fmt.Sprintf("AMDSMI_STATUS_%s [code %d]", name, int(s))
	}
	return fmt.Sprintf("AMD SMI status %d", int(s))
}

// Bounds of what is believed.
const (
	maxHandles = 256     // sockets, and processors of a socket
	ringSize   = 1 << 20 // of the driver's records of a GPU (CPER_MAX_RING_SIZE)
	maxHeaders = 4096    // records in one answer
	maxAnswers = 64      // until all records are there
	maxRecord  = 1 << 16
	// The library writes the serial number into each of the sections that a record says it
	// has, 65,535 at most, wherever that is; its decoder reads beyond a record that is cut.
	slack = 65536 * sectionSize
)

// memory is what the library writes to.
type memory struct {
	number  [8]uint64
	sockets [maxHandles]uintptr
	handles [maxHandles]uintptr
	headers [maxHeaders]uintptr
	afids   [512]uint64
	info    [1 << 16]byte // a structure, larger than any
	record  [maxRecord + 4096]byte
	records [ringSize + slack]byte
}

// Library is a loaded libamd_smi. One goroutine uses it, but for Calls and Version.
type Library struct {
	*native.Caller
	lib     *native.Library
	memory  *memory
	gpus    map[string]uintptr // by PCI address
	started bool
	version atomic.Pointer[Version]
}

// Load loads the first of names and looks its functions up. It calls none.
// Errors: those of native.Load.
func Load(names []string) (*Library, error) {
	n, err := native.Load(names, functions)
	if err != nil {
		return nil, err
	}
	return &Library{Caller: n.NewCaller(), lib: n, memory: native.New[memory]()}, nil
}

// Path is the file that was loaded.
func (l *Library) Path() string { return l.lib.Path() }

// Version is known after Start; before, and if the library does not say, it is the zero one.
func (l *Library) Version() Version {
	if v := l.version.Load(); v != nil {
		return *v
	}
	return Version{}
}

// call makes one call, if the library has the function.
func (l *Library) call(f int, a ...uint64) status {
	if !l.lib.Has(f) {
		return unsupported
	}
	return status(l.Call(f, a...))
}

// must is call with an error.
func (l *Library) must(f int, a ...uint64) error {
	if s := l.call(f, a...); s != success {
		return fmt.Errorf("call %s: %w", functions[f].Name, s)
	}
	return nil
}

// Start starts the library and lists its GPUs. It may take seconds, or hang.
func (l *Library) Start() error {
	const amdGPUs = 1 << 1 // AMDSMI_INIT_AMD_GPUS
	if err := l.must(fnInit, amdGPUs); err != nil {
		return err
	}
	l.started = true
	m := l.memory
	clear(m.number[:])
	if l.call(fnVersion, native.Address(&m.number)) == success {
		a, b := m.number[0], m.number[1] // two words each
		v := versionOf(&[4]uint32{uint32(a), uint32(a >> 32), uint32(b), uint32(b >> 32)})
		l.version.Store(&v)
	}
	l.gpus = map[string]uintptr{}
	m.number[0] = maxHandles
	if err := l.must(fnSockets, native.Address(&m.number), native.Address(&m.sockets)); err != nil {
		return errors.Join(err, l.Stop())
	}
	for _, socket := range m.sockets[:min(uint32(m.number[0]), maxHandles)] {
		m.number[0] = maxHandles
		if l.call(fnProcessors, uint64(socket), native.Address(&m.number), native.Address(&m.handles)) != success {
			continue
		}
		for _, h := range m.handles[:min(uint32(m.number[0]), maxHandles)] {
			l.list(h)
		}
	}
	return nil
}

// list keeps the handle of a GPU by its address. A partition has an address whose function is its
// number; the first of a GPU, and of two with one address, counts.
func (l *Library) list(h uintptr) {
	const gpu = 1
	m := l.memory
	clear(m.number[:])
	if h == 0 || l.call(fnKind, uint64(h), native.Address(&m.number)) != success || uint32(m.number[0]) != gpu {
		return
	}
	m.number[0] = 0
	s := l.call(fnAddress, uint64(h), native.Address(&m.number))
	id, domain := m.number[0], m.number[0]>>16
	if s != success || id == 0 { // as without /dev/dri: the address that it has from /sys
		if s = l.call(fnAddressID, uint64(h), native.Address(&m.number)); s != success || m.number[0]>>28&0xf != 0 { // a partition
			return
		}
		id, domain = m.number[0], m.number[0]>>32
	}
	pci := fmt.Sprintf("%04x:%02x:%02x.%x", domain, id>>8&0xff, id>>3&0x1f, id&7)
	if _, twice := l.gpus[pci]; !twice {
		l.gpus[pci] = h
	}
}

// Stop ends the library. It may be called without Start, and ends a Library.
func (l *Library) Stop() error {
	var err error
	if l.started {
		l.started, l.gpus = false, nil
		err = l.must(fnShutDown)
	}
	return err
}

// Free releases the memory that the library writes to. No call may be in progress.
func (l *Library) Free() { native.Free(l.memory) }

// Lists reports whether the library lists the GPU.
func (l *Library) Lists(pci string) bool { return l.gpus[pci] != 0 }

// RefusesRecords says why Records is not asked, "" if it is. Of a library that has not said its
// version everything is asked for that it has a function for: Start may yet say it.
func (l *Library) RefusesRecords() string { return l.refusal(fnRecords) }

// RefusesViolations is the same of Violations.
func (l *Library) RefusesViolations() string { return l.refusal(fnViolation) }

// RefusesMemory is the same of Facts.MemoryWidth and MemoryBandwidth.
func (l *Library) RefusesMemory() string { return l.refusal(fnVRAM) }

func (l *Library) refusal(f int) string {
	v := l.version.Load()
	switch {
	case !l.lib.Has(f):
		return "this libamd_smi has no " + functions[f].Name
	case v == nil:
		return ""
	case f == fnRecords && recordsCrash(*v):
		return "reading records with libamd_smi " + v.String() + " ends the process; 26.5 (ROCm 7.14) does not"
	case f < fnBoard:
		return ""
	case layoutOf(*v) == nil || f == fnViolation && layoutOf(*v).violation == 0:
		return fmt.Sprintf("the structures of libamd_smi %v are not known: those of %v to %v are, in part", v, layouts[0].first, layouts[len(layouts)-1].last)
	}
	return ""
}

// structure asks for a structure of a GPU, and returns its bytes.
func (l *Library) structure(f int, pci string, size int) ([]byte, error) {
	m := l.memory
	clear(m.info[:])
	if err := l.must(f, uint64(l.gpus[pci]), native.Address(&m.info)); err != nil {
		return nil, err
	}
	return m.info[:size], nil
}

// Facts are what does not change.
type Facts struct {
	Number, FRU, Manufacturer        string // of the board
	VBIOSName, VBIOSDate, PartNumber string
	MemoryKind, MemoryMaker          string
	MemoryWidth, MemoryBandwidth     float64 // bits; bytes per second; NaN: not known
}

// Facts asks for the facts of a GPU. What the library does not give is empty.
func (l *Library) Facts(pci string) Facts {
	f := Facts{MemoryWidth: math.NaN(), MemoryBandwidth: math.NaN()}
	known := layoutOf(l.Version())
	if known == nil || !l.Lists(pci) {
		return f
	}
	if b, err := l.structure(fnBoard, pci, known.board); err == nil {
		f.Number, f.FRU, f.Manufacturer = known.number.of(b), known.fru.of(b), known.manufacturer.of(b)
	}
	if b, err := l.structure(fnVBIOS, pci, known.vbios); err == nil {
		f.VBIOSName, f.VBIOSDate, f.PartNumber = known.vbiosName.of(b), known.vbiosDate.of(b), known.partNo.of(b)
	}
	b, err := l.structure(fnVRAM, pci, known.vram)
	if err != nil {
		return f
	}
	f.MemoryKind = memoryKinds[binary.NativeEndian.Uint32(b)]
	if f.MemoryMaker = known.maker.of(b); known.makerNumber {
		f.MemoryMaker = ""
		if i := binary.NativeEndian.Uint32(b[known.maker.at:]); f.MemoryKind != "" && int64(i) < int64(len(memoryMakers)) {
			f.MemoryMaker = memoryMakers[i]
		}
	}
	if known.width > 0 {
		if v := binary.NativeEndian.Uint32(b[known.width:]); v != 0 && v != math.MaxUint32 {
			f.MemoryWidth = float64(v)
		}
	}
	if known.bandwidth > 0 {
		if v := binary.NativeEndian.Uint64(b[known.bandwidth:]); v != 0 && v < 1<<32-1 {
			f.MemoryBandwidth = float64(v) * 1e9
		}
	}
	return f
}

// of returns the text, without what is no text. A number stands for a name that is not known.
func (t text) of(b []byte) string {
	s, _, _ := bytes.Cut(b[t.at:t.at+t.size], []byte{0})
	out := strings.TrimSpace(strings.ToValidUTF8(string(s), ""))
	if out == "N/A" || strings.HasPrefix(out, "0x") {
		return ""
	}
	return out
}
