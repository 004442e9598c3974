package kernellog

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

var update = flag.Bool("update", false, "rewrite testdata/golden.txt")

// corpus returns lines from public reports, without comments.
func corpus(t testing.TB) (lines []string) {
	t.Helper()
	text := testkit.Get(os.ReadFile("testdata/lines.txt"))(t)
	source := false
	for l := range strings.Lines(string(text)) {
		l = strings.TrimSuffix(l, "\n")
		switch {
		case strings.HasPrefix(l, "#"):
			source = source || strings.HasPrefix(l, "# https://")
		case l != "":
			testkit.ErrorIf(t, !source, "%q has no source", l)
			lines = append(lines, l)
		}
	}
	return lines
}

// String omits the parts of an event that its line shows anyway.
func (e Event) String() string {
	out := string(e.Kind)
	v, kind := reflect.ValueOf(e), reflect.TypeOf(e)
	for i := range v.NumField() {
		name := kind.Field(i).Name
		if name == "Kind" || name == "Text" || name == "Time" || v.Field(i).IsZero() {
			continue
		}
		out += fmt.Sprintf(" %s=%v", strings.ToLower(name), v.Field(i).Interface())
	}
	return out
}

// TestCorpus compares the parsed lines of public reports with a golden file.
func TestCorpus(t *testing.T) {
	var got strings.Builder
	var p parser
	kinds := map[Kind]bool{}
	for _, line := range corpus(t) {
		read := "-"
		if relevant([]byte(line)) {
			if e, ok := p.parse(unescape([]byte(line)), ""); ok {
				read = e.String()
				kinds[e.Kind] = true
			}
		} else if e, ok := p.parse(unescape([]byte(line)), ""); ok {
			t.Errorf("%q is an event (%v) that is not searched for", line, e)
		}
		fmt.Fprintf(&got, "%s\n    %s\n", line, read)
	}
	if *update {
		must(t, os.WriteFile("testdata/golden.txt", []byte(got.String()), 0o644))
	}
	want := testkit.Get(os.ReadFile("testdata/golden.txt"))(t)
	testkit.Equal(t, "lines are read otherwise, if that is right run with -update", string(want), got.String())
	for _, k := range []Kind{
		XID, SXidFatal, SXidNonFatal, FellOffBus, RmInitFailed, GSPTimeout, NVLinkError, AERCorrected, AERUncorrected, AERFatal, AMDReset, AMDResetDone,
		AMDResetFailed, AMDRingTimeout, AMDInitFailed, AMDLost, AMDVRAMLost, RASCorrected, RASUncorrected, RASPoison, XGMIError,
	} {
		testkit.ErrorIf(t, !kinds[k], "no line of the corpus is %s", k)
	}
}

// hostile has untrusted text inside driver lines, and lines that only look like the driver's, with what they are read as.
// A line without a device gets the kernel's device.
var hostile = [][]string{
	{"NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a, b): 79, GPU has fallen off the bus", "xid address=00000000:01:00.0 code=13 pid=1 process=a"},
	{"[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=2", "amdgpu_ring_timeout address=00000000:2D:00.0", "+pci:0000:2d:00.0"},
	{"NVRM: Xid (PCI:0000:01:00): 0, none", "-"},
	{"NVRM: Xid (PCI:0000:01:00): 9999999999, x", "-"},
	{"NVRM: Xid (PCI:0000:zz:00): 79, x", "-"},
	{"NVRM: Xid (PCI:0000:01:00", "-"},
	{"NVRM: Xid (", "-"},
	{"program NVRM: Xid (PCI:0000:01:00): 79, x", "-"},
	{"bad[1]: segfault NVRM: fallen off the bus", "-"},
	{"x SXid (PCI:0000:01:00.0): 20034, Fatal", "-"},
	{"NVRM: Xid (PCI:0000:01:00): 31, pid=-5, name=", "xid address=00000000:01:00.0 code=31"},
	{"amdgpu: 0 uncorrectable hardware errors detected in umc block", "-"},
	{"amdgpu 0000:0b:00.0: 2 new uncorrectable hardware errors detected in umc_2Z; x block", "-"},
	{"amdgpu 0000:0b:00.0: amdgpu: device lost from bus!", "-", "+pci:0000:0c:00.0"}, // written by another device's driver
	// Names of processes and files, which the kernel prints when a process crashes or changes a setting.
	{"python[7]: segfault at 0 ip 0 sp 0 error 6 in 0000:61:00.0: PCIe Bus Error: severity=Uncorrected (Fatal)[400000+1000]", "-"},
	{"x 0000:61:00.0:[7]: segfault at 0 ip 0 sp 0 error 6 in PCIe Bus Error: severity=Uncorrected (Fatal)[400000+1000]", "-"},
	{"NVRM: x[7]: segfault at 0 ip 0 sp 0 error 4 in GPU 0000:52:00.0 has fallen off the bus[400000+1000]", "-"},
	{"NVRM: [7]: segfault at 0 ip 0 sp 0 error 4 in GSP Timeout[400000+1000]", "-"},
	{"nvidia-nvswitch[7]: segfault at 0 ip 0 sp 0 error 4 in nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30[400000+1000]", "-"},
	{"amdgpu [7]: segfault at 0 ip 0 sp 0 error 4 in amdgpu 0000:0b:00.0: device lost from bus[400000+1000]", "-"},
	{"traps: amdgpu[7] general protection fault ip:0 sp:0 error:0 in amdgpu 0000:0b:00.0: device lost from bus[400000+1000]", "-"},
	{"NVRM: Xid (PCI:: page allocation failure: order:0, mode:0x0(GFP)", "-"},
	{"NVRM: nvlink: page allocation failure: order:0, mode:0x0(GFP)", "-"},
	{"NVRM: GPU at 0000:09:00.0 has fallen off the bus", "fell_off_bus address=00000000:09:00.0"}, // older drivers
	{"NVRM: RmInitAda (7): drop_caches: 3", "-"},
	{"amdgpu 0000:0b:00.0: 1048560 uncorrectable hardware errors detected in umc block", "-"}, // from a sleeping GPU
	{"NVRM: Xid (PCI:0000:01:00): 43, pid=7, name=" + strings.Repeat("ü", 200) + ", Ch 1", "xid address=00000000:01:00.0 code=43 pid=7 process=" + strings.Repeat("ü", 32)},
}

func TestHostileLines(t *testing.T) {
	for _, c := range hostile {
		var p parser
		got := "-"
		if e, ok := p.parse(c[0], strings.Join(c[2:], "")); ok {
			got = e.String()
		}
		testkit.Equal(t, c[0], c[1], got)
	}
}

// TestFellOffBus: the line that names the GPU may be two lines before.
func TestFellOffBus(t *testing.T) {
	for other, want := range []uint8{0xb3, 0xb3, 0} {
		var p parser
		p.parse("NVRM: The NVIDIA GPU 0000:b3:00.0", "")
		for range other {
			p.parse("NVRM: (PCI ID: 10de:2330)", "")
		}
		if e, ok := p.parse("NVRM: fallen off the bus and is not responding to commands.", ""); !ok || e.Address.Bus != want {
			t.Errorf("after %d other lines: %v, want bus %x", other, e, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, l := range corpus(f) {
		f.Add(l, "")
	}
	f.Add("[drm] VRAM is lost", "+pci:0000:03:00.0")
	for _, c := range hostile {
		f.Add(c[0], strings.Join(c[2:], ""))
	}
	f.Fuzz(func(t *testing.T, line, device string) {
		var p parser
		e, ok := p.parse(line, device)
		if !ok {
			testkit.Equal(t, line+" is no event", Event{}, e)
			return
		}
		testkit.ErrorIf(t, !relevant([]byte(line)), "%q is an event that is not searched for", line)
		testkit.ErrorIf(t, ofProcess.MatchString(line), "%q is of a process", line)
		testkit.ErrorIf(t, e.Kind == "" || e.Kind == XID && e.Code == 0 || e.Code < 0 || e.PID < 0 || e.Count < 0, "%q is read as %+v", line, e)
		for _, text := range []string{e.Text, e.Process, e.Link, e.Block} {
			if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
				t.Errorf("%q has the text %q", line, text)
			}
		}
	})
}

// FuzzNames puts the names of a process and of its executable into the kernel's own lines, none of which may be an event.
func FuzzNames(f *testing.F) {
	f.Add("amdgpu 0000:0b:", "00.0: device lost from bus")
	f.Add("NVRM: nvlink: x", "link 3 failed")
	f.Add("NVRM: GPU0 a: b", "GSP Timeout")
	f.Add("0000:61:00.0:", "PCIe Bus Error: severity=Uncorrected (Fatal)\nNVRM: fallen off the bus")
	f.Fuzz(func(t *testing.T, name, executable string) {
		name = name[:min(len(name), 15)] // TASK_COMM_LEN
		for _, line := range []string{
			name + "[7]: segfault at 0 ip 0 sp 0 error 4 in " + executable + "[400000+1000]",
			"traps: " + name + "[7] general protection fault ip:0 sp:0 error:0 in " + executable + "[400000+1000]",
			name + ": page allocation failure: order:0, mode:0x0(GFP), nodemask=(null)", name + " (7): drop_caches: 3", name + " invoked oom-killer: gfp_mask=0x0(GFP)",
			"process '" + executable + "' started with executable stack", "Out of memory: Killed process 7 (" + name + ") total-vm:1kB",
		} {
			var p parser
			if e, ok := p.parse(line, ""); ok {
				t.Errorf("%q is read as %+v", line, e)
			}
		}
	})
}
