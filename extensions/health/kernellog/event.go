package kernellog

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"warpgauge/extensions/health/pci"
)

// Kind classifies a line. Its values are label values.
type Kind string

// Kinds.
const (
	XID            Kind = "xid"
	SXidFatal      Kind = "sxid_fatal" // of an NVSwitch
	SXidNonFatal   Kind = "sxid_non_fatal"
	FellOffBus     Kind = "fell_off_bus" // on a line of its own, usually together with an XID 79
	RmInitFailed   Kind = "rm_init_failed"
	GSPTimeout     Kind = "gsp_timeout"
	NVLinkError    Kind = "nvlink_error"
	AERCorrected   Kind = "aer_corrected"
	AERUncorrected Kind = "aer_uncorrected"
	AERFatal       Kind = "aer_fatal"
	AMDReset       Kind = "amdgpu_reset" // a reset begins
	AMDResetDone   Kind = "amdgpu_reset_succeeded"
	AMDResetFailed Kind = "amdgpu_reset_failed"
	AMDRingTimeout Kind = "amdgpu_ring_timeout"
	AMDInitFailed  Kind = "amdgpu_init_failed"
	AMDLost        Kind = "amdgpu_device_lost"
	AMDVRAMLost    Kind = "amdgpu_vram_lost"
	RASCorrected   Kind = "ras_corrected"
	RASUncorrected Kind = "ras_uncorrected"
	RASPoison      Kind = "ras_poison"
	XGMIError      Kind = "xgmi_error"
)

// Event is a line that reports something about a device. Missing parts are zero.
type Event struct {
	Time    time.Time
	Kind    Kind
	Address pci.Address // zero if the line names no device
	Code    int         // of an XID or SXid
	Cause   int         // the XID that caused this one, if the line names it
	PID     int
	Process string
	Link    string // NVSwitch link number
	Block   string // RAS block
	// Count is the number of errors in the line. Total means that the number counts from the driver's
	// load; such a line repeats whenever the counters are read.
	Count int
	Total bool
	Text  string // the line without control characters, cut to maxText
}

// maxText bounds Event.Text; maxWord bounds other texts from a line.
const (
	maxText = 256
	maxWord = 64
)

// marks lists the texts of relevant lines: each such line contains one. The parser looks for them first,
// because almost no kernel log line has one.
var marks = [][]byte{[]byte("NVRM: "), []byte("amdgpu"), []byte("SXid ("), []byte("Bus Error: severity="), []byte("VRAM is lost")}

// relevant reports whether a record may be relevant.
func relevant(record []byte) bool {
	for _, m := range marks {
		if bytes.Contains(record, m) {
			return true
		}
	}
	return false
}

// parser parses lines. It remembers the last named GPU for the following lines: NVIDIA's driver
// writes "The NVIDIA GPU 0000:b3:00.0 (PCI ID: …) installed in this system has fallen off the bus"
// in three lines, which some kernels log as separate records.
type parser struct {
	named pci.Address
	left  int // driver lines that may still refer to it
}

// parse parses a kernel log line without its prefix. device is the kernel's device name, such as
// "+pci:0000:3b:00.0", or "". ok is false for lines that report no fault of a GPU or NVSwitch.
func (p *parser) parse(line, device string) (e Event, ok bool) {
	switch {
	case strings.HasPrefix(line, "NVRM: Xid ("):
		ok = e.xid(line[len("NVRM: Xid ("):])
	case strings.HasPrefix(line, "NVRM: "):
		ok = e.match(line, nvidiaPhrases)
	case strings.Contains(line, "SXid ("):
		ok = e.sxid(line)
	case strings.Contains(line, "Bus Error: severity="):
		ok = e.aer(line)
	case strings.HasPrefix(line, "amdgpu") || strings.HasPrefix(line, "[drm"):
		ok = e.match(line, amdPhrases) || e.ras(line)
	}
	if p.left--; strings.HasPrefix(line, "NVRM: The NVIDIA GPU ") {
		p.left = 2
		p.named, _ = pci.Find(line)
	}
	if !ok {
		return Event{}, false
	}
	if e.Address == (pci.Address{}) && e.Kind == FellOffBus && p.left >= 0 {
		e.Address = p.named
	}
	if e.Address == (pci.Address{}) {
		if at, found := strings.CutPrefix(device, "+pci:"); found {
			e.Address, _ = pci.Parse(at)
		}
	}
	e.Text = shorten(line, maxText)
	return e, true
}

// xid parses the text after "NVRM: Xid (": PCI:0000:3b:00): 13, pid=1, name=python, Ch 00000008, …
func (e *Event) xid(rest string) (ok bool) {
	e.Kind = XID
	at, rest, _ := strings.Cut(rest, "): ")
	if e.Address, ok = pci.Parse(at); !ok {
		return false
	}
	if e.Code, rest, ok = number(rest); !ok || e.Code == 0 {
		return false
	}
	rest = strings.TrimPrefix(rest, ", ")
	if pid, after, found := field(rest, "pid="); found {
		e.PID, _, _ = number(strings.Trim(pid, "'"))
		rest = after
	}
	if name, after, found := field(rest, "name="); found {
		if name = strings.Trim(name, "'"); name != "<unknown>" {
			e.Process = shorten(name, maxWord)
		}
		rest = after
	}
	e.Cause, _, _ = number(after(rest, "caused by previous Xid "))
	return true
}

// phrase lists texts that a line of a kind contains, in order.
type phrase struct {
	kind  Kind
	first string
	then  string
}

// Phrases of NVIDIA's driver outside XIDs, and of amdgpu.
var (
	nvidiaPhrases = []phrase{
		{FellOffBus, "fallen off the bus", ""},
		{RmInitFailed, "RmInitAdapter failed!", ""},
		{GSPTimeout, "GSP Timeout", ""},
		{GSPTimeout, "Heartbeat timed out", ""},
		{GSPTimeout, "Timeout waiting for RPC from GSP", ""},
		{NVLinkError, "nvlink", "fail"},
	}
	amdPhrases = []phrase{
		{AMDRingTimeout, "ring ", " timeout, signaled seq="},
		{AMDReset, "GPU reset begin!", ""},
		{AMDResetDone, "GPU reset(", ") succeeded"},
		{AMDResetFailed, "GPU reset(", ") failed"},
		{AMDResetFailed, "GPU reset end with ret = -", ""},
		{AMDInitFailed, "Fatal error during GPU init", ""},
		{AMDLost, "device lost from bus", ""},
		{AMDVRAMLost, "VRAM is lost", ""},
		{XGMIError, "XGMI PCS ", " detected"},
		{XGMIError, "WAFL PCS ", " detected"},
		{RASUncorrected, "uncorrectable hardware error(", ""},
		{RASPoison, "poison is consumed", ""},
		{RASPoison, "RAS poison consumption", ""},
	}
)

// match returns whether a phrase matches, and sets the device that the line names.
func (e *Event) match(line string, phrases []phrase) bool {
	for i := range phrases {
		if _, rest, ok := strings.Cut(line, phrases[i].first); ok && strings.Contains(rest, phrases[i].then) {
			e.Kind = phrases[i].kind
			e.Address, _ = pci.Find(line)
			return true
		}
	}
	return false
}

// sxid parses nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 … It rejects
// lines with further data of the same error.
func (e *Event) sxid(line string) (ok bool) {
	at, rest, _ := strings.Cut(after(line, "SXid ("), "): ")
	if e.Address, ok = pci.Parse(at); !ok || !strings.HasPrefix(line, "nvidia-nvswitch") {
		return false
	}
	e.Code, rest, ok = number(rest)
	if e.Kind = SXidNonFatal; strings.HasPrefix(rest, ", Fatal") {
		e.Kind = SXidFatal
	} else if !strings.HasPrefix(rest, ", Non-fatal") {
		return false
	}
	if v, _, found := number(after(rest, "Link ")); found {
		e.Link = strconv.Itoa(v)
	}
	return ok
}

// aer parses nvidia 0000:03:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=…. It is the
// only line of an error that names the reporting device.
func (e *Event) aer(line string) bool {
	before, severity, _ := strings.Cut(line, "PCIe Bus Error: severity=")
	e.Address, _ = pci.Find(before)
	switch {
	case strings.HasPrefix(severity, "Correct"):
		e.Kind = AERCorrected
	case !strings.HasPrefix(severity, "Uncorrect"):
		return false
	case strings.Contains(severity, "(Fatal)"):
		e.Kind = AERFatal
	default:
		e.Kind = AERUncorrected
	}
	return true
}

// rasPhrases follow a number. Lines with "in total" repeat other lines.
var rasPhrases = []phrase{
	{RASUncorrected, " uncorrectable hardware errors detected in ", " block"},
	{RASCorrected, " correctable hardware errors detected in ", " block"},
	{RASPoison, " deferred hardware errors detected in ", " block"},
	{RASPoison, " poison consumption detected in ", " block"},
}

// ras parses "socket: 4, die: 0, 1 new uncorrectable hardware errors detected in umc block".
func (e *Event) ras(line string) bool {
	if strings.Contains(line, "detected in total") || !e.match(line, rasPhrases) {
		return false
	}
	before, block, _ := strings.Cut(line, " detected in ")
	e.Block, e.Total = word(block), !strings.Contains(before, " new ")
	for _, w := range strings.Fields(before) { // the last number is the count
		if n, rest, ok := number(w); ok && rest == "" {
			e.Count = n
		}
	}
	// On a sleeping GPU counters read all ones, which gives 1048560 per block.
	return e.Count > 0 && e.Count%0xffff0 != 0
}

// after returns the text after a mark.
func after(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	return rest
}

// field splits "name=value, rest".
func field(text, name string) (value, rest string, ok bool) {
	if text, ok = strings.CutPrefix(text, name); !ok {
		return "", text, false
	}
	value, rest, _ = strings.Cut(text, ", ")
	return value, rest, true
}

// number parses the leading digits of a text. More than nine are no number.
func number(text string) (n int, rest string, ok bool) {
	i := 0
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	n, err := strconv.Atoi(text[:i])
	if err != nil || i > 9 {
		return 0, text[i:], false
	}
	return n, text[i:], true
}

// word returns the leading letters, digits and underscores of a text.
func word(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if end >= 0 {
		text = text[:end]
	}
	return shorten(text, maxWord)
}

// shorten makes untrusted text safe for labels and logs.
func shorten(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return strings.TrimSpace(text)
}
