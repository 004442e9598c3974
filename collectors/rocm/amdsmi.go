package rocm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
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
)

// amdAPI describes AMD SMI. Structures grow from release to release without a new soname; amdLayouts describes the known
// releases. Nothing reads structures of other releases. Records of every release are read, because they have their
// own byte format (UEFI, appendix N). Soname 27 is ROCm 10, 26 is 7, 25 is 6.4, 24 is 6.1 to 6.3.
var amdAPI = libraryAPI{
	Name: "AMD SMI", Folders: []string{"lib", "lib64", "share/amd_smi/amdsmi"}, Prefix: "AMDSMI_STATUS_",
	Sonames:   []string{"libamd_smi.so.27", "libamd_smi.so.26", "libamd_smi.so.25", "libamd_smi.so.24", "libamd_smi.so"},
	Functions: amdFunctions,
	Statuses: map[int32]string{
		1: "INVAL", 2: "NOT_SUPPORTED", 3: "NOT_YET_IMPLEMENTED", 4: "FAIL_LOAD_MODULE", 5: "FAIL_LOAD_SYMBOL", 6: "DRM_ERROR", 7: "API_FAILED",
		8: "TIMEOUT", 9: "RETRY", 10: "NO_PERM", 12: "IO", 14: "FILE_ERROR", 15: "OUT_OF_RESOURCES", 16: "INTERNAL_EXCEPTION",
		18: "INIT_ERROR", 30: "BUSY", 31: "NOT_FOUND", 32: "NOT_INIT", 34: "DRIVER_NOT_LOADED", moreData: "MORE_DATA", 40: "NO_DATA", 43: "UNEXPECTED_DATA",
	},
}

// moreData is the status of every answer except the last.
const moreData = 39

var amdFunctions = []libraryFunction{
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
}

// Limits on numbers from the library.
const (
	maxHandles = 256     // sockets, and processors of a socket
	ringSize   = 1 << 20 // the driver's records of a GPU (CPER_MAX_RING_SIZE)
	maxHeaders = 4096    // records in one answer
	maxAnswers = 64      // answers until all records have been read
	maxRecord  = 1 << 16
	// The library writes the serial number into each section that a record claims to have, up to 65,535, without a
	// bounds check. Its decoder reads past the end of a truncated record.
	slack = 65536 * sectionSize
)

// amdMemory holds the buffers that the library writes to.
type amdMemory struct {
	number  [8]uint64
	sockets [maxHandles]uintptr
	handles [maxHandles]uintptr
	headers [maxHeaders]uintptr
	afids   [512]uint64
	info    [1 << 16]byte // larger than any structure
	record  [maxRecord + 4096]byte
	records [ringSize + slack]byte
}

// amdSMI is a loaded libamd_smi. One goroutine uses it and keeps its thread, because libraries before ROCm 6.1.1 bind locks
// to the thread that starts them. Calls and Version are safe for any goroutine.
type amdSMI struct {
	*caller
	memory  *amdMemory
	gpus    map[string]uintptr // by PCI address
	started bool
	version atomic.Pointer[amdVersion]
}

// loadAMD loads AMD SMI; see openLibrary.
func loadAMD(named string) (*amdSMI, error) {
	c, err := openLibrary(&amdAPI, named)
	if err != nil {
		return nil, err
	}
	return &amdSMI{caller: c, memory: cNew[amdMemory]()}, nil
}

// Version returns the version. It is zero before Start, or if the library does not report one.
func (l *amdSMI) Version() amdVersion {
	if v := l.version.Load(); v != nil {
		return *v
	}
	return amdVersion{}
}

// Start starts the library and lists its GPUs. It may take seconds or hang.
func (l *amdSMI) Start() error {
	const amdGPUs = 1 << 1 // AMDSMI_INIT_AMD_GPUS
	if err := l.Must(fnInit, amdGPUs); err != nil {
		return err
	}
	l.started = true
	m := l.memory
	clear(m.number[:])
	if l.Call(fnVersion, addressOf(&m.number)) == smiSuccess {
		a, b := m.number[0], m.number[1] // each holds two words
		v := versionOf(&[4]uint32{uint32(a), uint32(a >> 32), uint32(b), uint32(b >> 32)})
		l.version.Store(&v)
	}
	l.gpus = map[string]uintptr{}
	m.number[0] = maxHandles
	if err := l.Must(fnSockets, addressOf(&m.number), addressOf(&m.sockets)); err != nil {
		return errors.Join(err, l.Stop())
	}
	for _, socket := range m.sockets[:min(uint32(m.number[0]), maxHandles)] {
		m.number[0] = maxHandles
		if l.Call(fnProcessors, uint64(socket), addressOf(&m.number), addressOf(&m.handles)) != smiSuccess {
			continue
		}
		for _, h := range m.handles[:min(uint32(m.number[0]), maxHandles)] {
			l.list(h)
		}
	}
	return nil
}

// list records the handle of a GPU by its PCI address. A partition's address has the partition number as its function.
// The first handle with an address counts.
func (l *amdSMI) list(h uintptr) {
	const gpu = 1
	m := l.memory
	clear(m.number[:])
	if h == 0 || l.Call(fnKind, uint64(h), addressOf(&m.number)) != smiSuccess || uint32(m.number[0]) != gpu {
		return
	}
	m.number[0] = 0
	s := l.Call(fnAddress, uint64(h), addressOf(&m.number))
	id, domain := m.number[0], m.number[0]>>16
	if s != smiSuccess || id == 0 { // as without /dev/dri: use the address from /sys
		if s = l.Call(fnAddressID, uint64(h), addressOf(&m.number)); s != smiSuccess || m.number[0]>>28&0xf != 0 { // a partition
			return
		}
		id, domain = m.number[0], m.number[0]>>32
	}
	pci := pciOf(domain, id)
	if _, twice := l.gpus[pci]; !twice {
		l.gpus[pci] = h
	}
}

// Stop ends the library. It may be called without Start. It cannot be started again.
func (l *amdSMI) Stop() error {
	var err error
	if l.started {
		l.started, l.gpus = false, nil
		err = l.Must(fnShutDown)
	}
	return err
}

// Lists reports whether the library lists the GPU.
func (l *amdSMI) Lists(pci string) bool { return l.gpus[pci] != 0 }

// refusal returns why a function must not be called, or "" if it may be. Without a version every existing function may be
// called, because Start may still report a version.
func (l *amdSMI) refusal(f int) string {
	v := l.version.Load()
	switch {
	case !l.Has(f):
		return "this libamd_smi has no " + amdFunctions[f].Name
	case v == nil:
		return ""
	case f == fnRecords && *v == amdVersion{26, 4}:
		// It frees memory that it did not allocate (https://github.com/ROCm/device-metrics-exporter/pull/532).
		return "reading records with libamd_smi " + v.String() + " ends the process; 26.5 (ROCm 7.14) does not"
	case f >= fnBoard && layoutOf(*v) == nil:
		return fmt.Sprintf("the exporter cannot decode the structures of libamd_smi %v; it supports some versions of %v to %v", v, amdLayouts[0].first, amdLayouts[len(amdLayouts)-1].last)
	}
	return ""
}

// structure reads a structure of a GPU and returns its bytes.
func (l *amdSMI) structure(f int, pci string, size int) ([]byte, error) {
	m := l.memory
	clear(m.info[:])
	if err := l.Must(f, uint64(l.gpus[pci]), addressOf(&m.info)); err != nil {
		return nil, err
	}
	return m.info[:size], nil
}

// boardFacts are the constant properties of a board.
type boardFacts struct {
	Number, FRU, Manufacturer        string // of the board
	VBIOSName, VBIOSDate, PartNumber string
	MemoryKind, MemoryMaker          string
	MemoryWidth, MemoryBandwidth     float64 // bits; bytes per second; NaN: unknown
}

// Facts reads the facts of a GPU. Unknown facts are empty.
func (l *amdSMI) Facts(pci string) boardFacts {
	f := boardFacts{MemoryWidth: math.NaN(), MemoryBandwidth: math.NaN()}
	known := layoutOf(l.Version())
	if known == nil || !l.Lists(pci) {
		return f
	}
	if b, err := l.structure(fnBoard, pci, known.board); err == nil {
		f.Number, f.FRU, f.Manufacturer = known.number.decode(b), known.fru.decode(b), known.manufacturer.decode(b)
	}
	if b, err := l.structure(fnVBIOS, pci, known.vbios); err == nil {
		f.VBIOSName, f.VBIOSDate, f.PartNumber = known.vbiosName.decode(b), known.vbiosDate.decode(b), known.partNo.decode(b)
	}
	b, err := l.structure(fnVRAM, pci, known.vram)
	if err != nil {
		return f
	}
	f.MemoryKind = memoryKinds[binary.NativeEndian.Uint32(b)]
	if f.MemoryMaker = known.maker.decode(b); known.makerNumber {
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

// decode returns the text, or "" for a placeholder. The library writes a number instead of an unknown name.
func (t textAt) decode(b []byte) string {
	s, _, _ := bytes.Cut(b[t.at:t.at+t.size], []byte{0})
	out := strings.TrimSpace(strings.ToValidUTF8(string(s), ""))
	if out == "N/A" || strings.HasPrefix(out, "0x") {
		return ""
	}
	return out
}
