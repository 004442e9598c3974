package kernellog

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	return slices.ContainsFunc(marks, func(mark []byte) bool { return bytes.Contains(record, mark) })
}

// parser parses lines. It remembers the last named GPU for the following lines: NVIDIA's driver
// writes "The NVIDIA GPU 0000:b3:00.0 (PCI ID: …) installed in this system has fallen off the bus"
// in three lines, which some kernels log as separate records.
type parser struct {
	named pci.Address
	left  int // driver lines that may still refer to it
}

// pattern matches the lines of a kind from their beginning. Its groups are named for the parts of an Event.
type pattern struct {
	kind Kind
	*regexp.Regexp
}

// Parts of patterns. Nothing that a process chooses comes before an address.
const (
	at      = `(?P<at>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F](?:\.[0-7])?)`
	nvidia  = `^NVRM: (?:GPU (?:at )?` + at + `:? )?`
	nvlink  = `^nvidia-nvswitch\d+: SXid \(PCI:` + at + `\): (?P<code>\d{1,9}), `
	aer     = `^[\w-]+ ` + at + `: (?:AER: )?PCIe Bus Error: severity=`
	amdgpu  = `^(?:amdgpu ` + at + `: (?:amdgpu: )?(?:\{\d+\})?|\[drm(?::\w+ \[amdgpu\])?\] (?:\*ERROR\* )?)`
	counted = amdgpu + `(?:socket: \d+, die: \d+, )?(?P<count>\d{1,9}) (?P<new>new )?`
	block   = ` detected in (?P<block>\w{1,64}) block`
)

func compile(kind Kind, text string) pattern { return pattern{kind, regexp.MustCompile(text)} }

// patterns are compiled for the first line of a driver.
var patterns = sync.OnceValue(func() []pattern {
	return []pattern{
		compile(XID, `^NVRM: Xid \((?:PCI:)?`+at+`(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (?P<code>\d{1,9}), (?:pid='?(?:(?P<pid>\d{1,9})|[^,]*)'?, )?(?:name='?(?P<name>[^,]*))?(?:.*caused by previous Xid (?P<cause>\d{1,9}))?`),
		compile(FellOffBus, nvidia+`(?:GPU )?(?:has )?fallen off the bus`),
		compile(FellOffBus, `^NVRM: The NVIDIA GPU `+at+`(?s:.*)\nNVRM: fallen off the bus`),
		compile(RmInitFailed, nvidia+`RmInitAdapter failed!`),
		compile(GSPTimeout, `^NVRM: (?:GPU\d+ )?\w+: .*(?:GSP Timeout|Heartbeat timed out|Timeout waiting for RPC from GSP)`),
		compile(NVLinkError, `^NVRM: (?:GPU\d+ )?\w*nvlink\w*: .*fail`),
		compile(SXidFatal, nvlink+`Fatal(?:, Link (?P<link>\d{1,9}))?`),
		compile(SXidNonFatal, nvlink+`Non-fatal(?:, Link (?P<link>\d{1,9}))?`),
		compile(AERCorrected, aer+`Correct`),
		compile(AERFatal, aer+`Uncorrect\w* \(Fatal\)`),
		compile(AERUncorrected, aer+`Uncorrect`),
		compile(AMDRingTimeout, amdgpu+`ring \S+ timeout, signaled seq=`),
		compile(AMDReset, amdgpu+`GPU reset begin!`),
		compile(AMDResetDone, amdgpu+`GPU reset\(\d+\) succeeded`),
		compile(AMDResetFailed, amdgpu+`GPU reset(?:\(\d+\) failed| end with ret = -)`),
		compile(AMDInitFailed, amdgpu+`Fatal error during GPU init`),
		compile(AMDLost, amdgpu+`device lost from bus`),
		compile(AMDVRAMLost, amdgpu+`VRAM is lost`),
		compile(XGMIError, amdgpu+`(?:XGMI|WAFL) PCS \S+ detected`),
		compile(RASUncorrected, amdgpu+`uncorrectable hardware error\(`),
		compile(RASPoison, amdgpu+`(?:RAS poison consumption|.*poison is consumed)`),
		compile(RASUncorrected, counted+`uncorrectable hardware errors`+block),
		compile(RASCorrected, counted+`correctable hardware errors`+block),
		compile(RASPoison, counted+`(?:deferred hardware errors|poison consumption)`+block),
	}
})

// ofProcess matches lines about a process, which begin with a name of its own choice: "NAME[PID]: segfault at …".
var ofProcess = regexp.MustCompile(`(?s)^.{1,15}(?:\[\d+\]|: page allocation failure)`)

// parse parses a kernel log line without its prefix. device is the kernel's device name, such as
// "+pci:0000:3b:00.0", or "". ok is false for lines that report no fault of a GPU or NVSwitch.
func (p *parser) parse(line, device string) (e Event, ok bool) {
	if p.left--; strings.HasPrefix(line, "NVRM: The NVIDIA GPU ") {
		p.left = 2
		p.named, _ = pci.Find(line)
	}
	all := patterns()
	i := slices.IndexFunc(all, func(p pattern) bool { return p.MatchString(line) })
	if i < 0 || ofProcess.MatchString(line) {
		return Event{}, false
	}
	groups := all[i].FindStringSubmatch(line)
	part := func(name string) string { // "" if the pattern or the line lacks it
		if n := all[i].SubexpIndex(name); n >= 0 {
			return groups[n]
		}
		return ""
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(part(name)) // the pattern ensures digits
		return n
	}
	e = Event{
		Kind: all[i].kind, Code: number("code"), Cause: number("cause"), PID: number("pid"), Link: part("link"), Block: part("block"),
		Count: number("count"), Total: part("count") != "" && part("new") == "", Text: shorten(line, maxText),
	}
	e.Address, ok = pci.Parse(part("at"))
	if name := strings.Trim(part("name"), "'"); name != "<unknown>" {
		e.Process = shorten(name, maxWord)
	}
	of, given := strings.CutPrefix(device, "+pci:")
	switch named, _ := pci.Parse(of); {
	case ok && given && named != e.Address: // the kernel says that another device's driver wrote it
		return Event{}, false
	case !ok && given:
		e.Address = named
	case !ok && e.Kind == FellOffBus && p.left >= 0:
		e.Address = p.named
	}
	// On a sleeping GPU counters read all ones, which gives 1048560 per block.
	if e.Kind == XID && e.Code == 0 || e.Block != "" && e.Count%0xffff0 == 0 {
		return Event{}, false
	}
	return e, true
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
