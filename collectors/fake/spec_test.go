package fake

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/pkg/field"
)

const goodSpec = `
# A node in trouble.
profile: dgx-a100-mig
devices: 12
seed: 7
loads:
  - {device: all, shape: inference}
  - device: [0-3, 9]
    shape: bursts
faults:
  - {at: 10s, device: 3, kind: hang}
  - {at: 10s, for: 30s, device: 2, kind: slow, delay: 30s}
  - {at: 20s, for: 15s, device: 5, kind: lost}
  - {at: 20s, switch: 1, kind: stalled}
  - {at: 5s, device: 1, field: DCGM_FI_DEV_GPU_UTIL, kind: value, value: 808000000}
  - {at: 5s, device: 0, kind: xid, xid: 79}
  - {for: 60s, kind: open-fails, message: "the driver is not loaded"}
  - {at: 30s, kind: devices, devices: 4}
  - {device: 4, kind: blank, field: dcgm_gpu_temp}
  - {device: 6, kind: blank}
  - {device: 7, kind: error, message: "unknown error [code 999]"}
  - {device: 8, kind: health, watch: NVLINK, state: warn, code: DCGM_FR_NVLINK_ERROR_THRESHOLD}
  - {device: 8, kind: health, watch: MEM, state: fail}
  - {at: 1s, for: 2s, kind: crash}
  - {kind: abort, once: true, message: "Assertion x failed."}
  - {kind: exit, status: 3}
  - {kind: spin, device: 0-1}
  - {kind: leak, rate: 100}
  - {kind: fds, once: false}
  - {kind: garbage}
  - {kind: scribble}
  - {kind: lost, device: 5, while: /tmp/lost}
`

func TestParseSpec(t *testing.T) {
	got, err := ParseSpec(strings.NewReader(goodSpec))
	if err != nil {
		t.Fatal(err)
	}
	util, _, _ := field.ByName("DCGM_FI_DEV_GPU_UTIL")
	temp, _, _ := field.ByName("DCGM_FI_DEV_GPU_TEMP")
	const s = time.Second
	want := &Spec{
		Profile: "dgx-a100-mig", Devices: 12, Seed: 7,
		Loads: []Load{{All(), Inference}, {[]Span{{0, 3}, {9, 9}}, Bursts}},
		Faults: []Fault{
			{Kind: Hang, At: 10 * s, GPUs: index(3)},
			{Kind: Slow, At: 10 * s, For: 30 * s, GPUs: index(2), Delay: 30 * s},
			{Kind: Lost, At: 20 * s, For: 15 * s, GPUs: index(5)},
			{Kind: Stalled, At: 20 * s, Switches: index(1)},
			{Kind: Absurd, At: 5 * s, GPUs: index(1), Field: util, Value: 808e6},
			{Kind: XID, At: 5 * s, GPUs: index(0), XID: 79},
			{Kind: OpenFails, For: 60 * s, Message: "the driver is not loaded"},
			{Kind: Devices, At: 30 * s, Count: 4},
			{Kind: Blank, GPUs: index(4), Field: temp},
			{Kind: Blank, GPUs: index(6)},
			{Kind: Failing, GPUs: index(7), Message: "unknown error [code 999]"},
			{Kind: Health, GPUs: index(8), Watch: "NVLINK", Code: "DCGM_FR_NVLINK_ERROR_THRESHOLD"},
			{Kind: Health, GPUs: index(8), Watch: "MEM", Fail: true},
			{Kind: Crash, At: s, For: 2 * s},
			{Kind: Abort, Once: true, Message: "Assertion x failed."},
			{Kind: Exit, Status: 3},
			{Kind: Spin, GPUs: []Span{{0, 1}}},
			{Kind: Leak, Rate: 100},
			{Kind: FDs},
			{Kind: Garbage},
			{Kind: Scribble},
			{Kind: Lost, GPUs: index(5), While: "/tmp/lost"},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Fault{})); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	kinds := map[FaultKind]bool{}
	for _, f := range got.Faults {
		kinds[f.Kind] = true
	}
	if len(kinds) != len(faultKinds()) {
		t.Errorf("the spec of this test has %d kinds of faults, there are %d", len(kinds), len(faultKinds()))
	}
	// What the spec says comes before the options.
	w := newWorld(t, Options{Profile: "rtx4090", Devices: 1, Seed: 1, Spec: got, Isolated: true})
	if w.profile.name != "dgx-a100-mig" || w.gpus != 12 || w.seed != 7 || w.shape(9) != Bursts || w.shape(10) != Inference {
		t.Errorf("node of the spec: %s with %d GPUs, seed %d, shapes %s and %s", w.profile.name, w.gpus, w.seed, w.shape(9), w.shape(10))
	}
}

func TestParseEmptySpec(t *testing.T) {
	for _, in := range []string{"", "# nothing\n", "---\n", "faults:\n", "loads: []\nfaults: []\n"} {
		got, err := ParseSpec(strings.NewReader(in))
		if err != nil {
			t.Errorf("ParseSpec(%q): %v", in, err)
			continue
		}
		if diff := cmp.Diff(&Spec{}, got); diff != "" {
			t.Errorf("ParseSpec(%q) (-want +got):\n%s", in, diff)
		}
	}
}

func TestParseBadSpec(t *testing.T) {
	f := func(in string, want ...string) {
		t.Helper()
		s, err := ParseSpec(strings.NewReader(in))
		if err == nil || s != nil {
			t.Errorf("ParseSpec(%q): got %v, error %v", in, s, err)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("ParseSpec(%q): error %q lacks %q", in, err, w)
			}
		}
		if got := strings.Count(err.Error(), "\n") + 1; got != len(want) {
			t.Errorf("ParseSpec(%q): %d problems, want %d:\n%v", in, got, len(want), err)
		}
	}
	f("profil: x", `line 1, column 1: unknown key "profil": the spec has devices, faults, loads, processes, profile, seed`)
	f("profile: dgx\n", `line 1, column 10: find profile "dgx"`)
	f("devices: 0\nseed: -1\n", `line 1, column 10: want a whole number from 1`, `line 2, column 7: want a whole number`)
	f("devices: 1\ndevices: 2\n", `line 2, column 1: key "devices" occurs twice`)
	f("- a\n", "line 1, column 1: the spec: want a mapping")
	f("faults: {}\n", "line 1, column 9: faults: want a list")
	f("loads:\n  - {device: 0}\n", `line 2, column 5: a load needs the key "shape"`)
	f("loads:\n  - {device: 0, shape: round}\n", `line 2, column 24: unknown shape "round"`)
	f("faults:\n  - hang\n", "line 2, column 5: want a fault such as")
	f("faults:\n  - {device: 1}\n", "line 2, column 5: a fault needs a kind")
	f("faults:\n  - {device: 1, kind: burn}\n", "line 2, column 23: want one of abort, blank, crash, devices")
	f("faults:\n  - {kind: hang}\n", "line 2, column 5: fault \"hang\": which device?")
	f("faults:\n  - {kind: hang, device: 1, xid: 4}\n", `line 2, column 29: unknown key "xid": a fault of kind hang has at, device, for, kind, switch, while`)
	f("faults:\n  - {kind: xid, device: 1, xid: 4, for: 1s}\n", `unknown key "for"`)
	f("faults:\n  - {kind: xid, device: 1}\n", `needs the key "xid"`)
	f("faults:\n  - {kind: xid, device: 1, xid: 0}\n", `want a whole number from 1 to 999`)
	f("faults:\n  - {kind: slow, device: 1, delay: 0s}\n", `needs a delay`)
	f("faults:\n  - {kind: slow, device: 1, delay: 30}\n", `want a duration such as 10s`)
	f("faults:\n  - {kind: hang, device: 1, at: -1s}\n", `want a duration such as 10s`)
	f("faults:\n  - {kind: hang, device: 5-2}\n", `want a device such as 3`)
	f("faults:\n  - {kind: hang, device: 99999}\n", `want a device such as 3`)
	f("faults:\n  - {kind: hang, device: [[1]]}\n", `not a list in a list`)
	f("faults:\n  - {kind: hang, device: []}\n", `want at least one device`)
	f("faults:\n  - {kind: value, device: 1, field: DCGM_FI_DEV_GPU_UTILL, value: 1}\n", `unknown field "DCGM_FI_DEV_GPU_UTILL"`)
	f("faults:\n  - {kind: value, device: 1, field: DCGM_FI_DEV_GPU_UTIL, value: .nan}\n", `want a number`)
	f("faults:\n  - {kind: value, device: 1, field: DCGM_FI_DEV_GPU_UTIL, value: high}\n", `want a number`)
	f("faults:\n  - {kind: health, device: 1, watch: MOOD, state: warn}\n", `unknown watch "MOOD"`)
	f("faults:\n  - {kind: health, device: 1, watch: MEM, state: bad}\n", `want one of warn, fail`)
	f("faults:\n  - {kind: leak}\n", `needs the key "rate"`)
	f("faults:\n  - {kind: leak, rate: 0}\n", `want a whole number from 1`)
	f("faults:\n  - {kind: crash, device: 1}\n", `unknown key "device"`)
	f("faults:\n  - {kind: crash, once: perhaps}\n", `want one of true, false`)
	f("faults:\n  - {kind: hang, device: 1, once: true}\n", `unknown key "once"`)
	f("faults:\n  - {kind: hang, device: 1, for: 1s, while: a}\n", `while replaces at and for`)
	f("faults:\n  - {kind: exit, status: 256}\n", `want a whole number from 0 to 255`)
	f("profile: &p rtx4090\nseed: *p\n", "line 2, column 7: want a value", "line 2, column 7: want a whole number")
	f("profile: rtx4090\n---\nseed: 1\n", "line 2: want one YAML document")
	f("profile: [\n", "yaml: ")
	f(strings.Repeat("#", maxSpec+1), "larger than")
	f("a: 1\n"+strings.Repeat("faults: {}\n", maxProblems+5), strings.Fields(strings.Repeat("line ", maxProblems)+"and")...)
}

func TestLoadSpec(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spec.yaml")
	if _, err := LoadSpec(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("load a file that does not exist: %v", err)
	}
	if err := os.WriteFile(path, []byte("profile: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadSpec(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("load a bad file: error %v, want path and line", err)
	}
	if err := os.WriteFile(path, []byte("profile: mi300x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := LoadSpec(path); err != nil || s.Profile != "mi300x" {
		t.Errorf("load: got %v, error %v", s, err)
	}
}

// FuzzParseSpec: no panic; an error means no spec, and its text says where; what
// parses makes a node, or is refused with a reason.
func FuzzParseSpec(f *testing.F) {
	f.Add(goodSpec)
	f.Add("faults: [{kind: devices, devices: 0}]")
	f.Add("profile: &p [*p]")
	f.Add("? {a: b}\n: c\n")
	f.Add("<<: {profile: x}")
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseSpec(strings.NewReader(in))
		if (s == nil) != (err != nil) {
			t.Fatalf("got %v and error %v", s, err)
		}
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without text")
			}
			return
		}
		for _, fault := range s.Faults {
			if err := fault.validate(); err != nil {
				t.Fatalf("parsed a fault that is not valid: %v", err)
			}
		}
		w, err := NewWorld(Options{Spec: s})
		if err != nil {
			return
		}
		w.Release()
	})
}
