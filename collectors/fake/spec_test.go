package fake

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
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
processes:
  - {device: 0, pid: 4711, memory: 100}
  - {device: 4-5, pid: 4713, busy: 35.5, at: 10s, for: 10s}
faults:
  - {at: 10s, for: 1m30s, device: 3, kind: hang}
  - {at: 5s, switch: 1, field: DCGM_FI_DEV_GPU_UTIL, label: "state=pending", kind: value, value: 808000000, rise: 5}
  - {at: 5s, device: 0, kind: xid, xid: 79}
  - {for: 60s, kind: open-fails, message: "the driver is not loaded"}
  - {at: 30s, kind: devices, devices: 4}
  - {device: 4, kind: blank, field: dcgm_gpu_temp}
  - {device: 8, kind: health, watch: NVLINK, state: warn, code: DCGM_FR_NVLINK_ERROR_THRESHOLD}
  - {device: 8, kind: health, watch: MEM, state: fail}
  - {kind: abort, once: true, message: "Assertion x failed."}
  - {kind: exit, status: 3}
  - {kind: leak, rate: 100}
  - {kind: lost, device: 5, while: /tmp/lost}
`

func TestParseSpec(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spec.yaml")
	must(t, os.WriteFile(path, []byte(goodSpec), 0o600))
	got := testkit.Get(LoadSpec(path))(t)
	util, _, _ := field.ByName("DCGM_FI_DEV_GPU_UTIL")
	temp, _, _ := field.ByName("DCGM_FI_DEV_GPU_TEMP")
	const s = time.Second
	want := &Spec{
		Profile: "dgx-a100-mig", Devices: 12, Seed: 7,
		Loads: []Load{{All(), Inference}, {Spans{{0, 3}, {9, 9}}, Bursts}},
		Processes: []Process{
			{GPUs: index(0), PID: 4711, Memory: 100, Busy: math.NaN()},
			{GPUs: Spans{{4, 5}}, PID: 4713, Memory: math.NaN(), Busy: 35.5, At: 10 * s, For: 10 * s},
		},
		Faults: []Fault{
			{Kind: Hang, At: 10 * s, For: 90 * s, GPUs: index(3)},
			{Kind: Absurd, At: 5 * s, Switches: index(1), Field: util, Label: collector.Label{Name: "state", Value: "pending"}, Value: 808e6, Rise: 5},
			{Kind: XID, At: 5 * s, GPUs: index(0), XID: 79},
			{Kind: OpenFails, For: 60 * s, Message: "the driver is not loaded"},
			{Kind: Devices, At: 30 * s, Count: 4},
			{Kind: Blank, GPUs: index(4), Field: temp},
			{Kind: Health, GPUs: index(8), Watch: "NVLINK", Code: "DCGM_FR_NVLINK_ERROR_THRESHOLD"},
			{Kind: Health, GPUs: index(8), Watch: "MEM", Fail: true},
			{Kind: Abort, Once: true, Message: "Assertion x failed."},
			{Kind: Exit, Status: 3},
			{Kind: Leak, Rate: 100},
			{Kind: Lost, GPUs: index(5), While: "/tmp/lost"},
		},
	}
	testkit.Equal(t, "spec", want, got, cmpopts.IgnoreUnexported(Fault{}), cmpopts.EquateNaNs())
	// The spec overrides the options.
	w := newWorld(t, Options{Profile: "rtx4090", Devices: 1, Seed: 1, Spec: got, Isolated: true})
	if w.profile.name != "dgx-a100-mig" || w.gpus != 12 || w.seed != 7 || w.shape(9) != Bursts || w.shape(10) != Inference {
		t.Errorf("node of the spec: %s with %d GPUs, seed %d, shapes %s and %s", w.profile.name, w.gpus, w.seed, w.shape(9), w.shape(10))
	}
	for _, in := range []string{"", "# nothing\n", "---\n", "faults:\n", "loads: []\nfaults: []\n"} {
		got, err := ParseSpec(strings.NewReader(in))
		diff := cmp.Diff(&Spec{}, got, cmpopts.EquateEmpty())
		testkit.ErrorIf(t, diff != "" || err != nil, "%q: %v (-want +got):\n%s", in, err, diff)
	}
}

// TestBadSpec checks that errors name the line and the mistake. NewWorld returns the errors that depend on the node.
func TestBadSpec(t *testing.T) {
	f := func(in string, want ...string) {
		t.Helper()
		spec, err := ParseSpec(strings.NewReader(in))
		if err == nil {
			_, err = NewWorld(Options{Spec: spec, Profile: "dgx-a100-mig"})
		}
		for _, w := range want {
			testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), w), "%q: got %v, want %q", in, err, w)
		}
	}
	f("profil: x", "line 1: field profil not found")
	f("profile: dgx\n", `find profile "dgx"`)
	f("devices: x\nseed: -1\n", "line 1: cannot unmarshal", "line 2: cannot unmarshal")
	f("devices: 1\ndevices: 2\n", `line 2: mapping key "devices" already defined`)
	f("profile: rtx4090\n---\nseed: 1\n", "want one YAML document")
	f("loads:\n  - {device: 0}\n", `line 2: a load needs the key "shape"`)
	f("loads:\n  - {device: 0, shape: round}\n", `line 2: unknown shape "round"`)
	fault := func(in string, want ...string) {
		t.Helper()
		f("faults:\n  - "+in+"\n", append(want, "line 2: ")...)
	}
	fault("hang", "want a mapping")
	fault("{device: 1}", "unknown kind")
	fault("{device: 1, kind: burn}", `unknown kind of fault "burn": there are abort, blank, crash, devices`)
	fault("{kind: hang}", `fault "hang": which device?`)
	fault("{kind: hang, device: 1, xid: 4}", `unknown key "xid": a fault of kind hang has kind at while for device switch`)
	fault("{kind: xid, device: 1, xid: 4, for: 1s}", `unknown key "for"`)
	fault("{kind: xid, device: 1, xid: 0}", "XIDs are 1 to 999")
	fault("{kind: hang, device: 1, at: 30}", "into time.Duration")
	fault("{kind: hang, device: 1, at: -1s}", "must not be negative")
	fault("{kind: hang, device: 5-2}", "want a device such as 3")
	fault("{kind: hang, device: [[1]]}", "want a device such as 3")
	fault("{kind: hang, device: []}", "which device?")
	fault("{kind: value, device: 1, field: DCGM_FI_DEV_GPU_UTILL, value: 1}", `unknown field "DCGM_FI_DEV_GPU_UTILL"`)
	fault("{kind: value, device: 1, field: DCGM_FI_DEV_GPU_UTIL, value: .nan}", "a number")
	fault("{kind: blank, device: 1, label: pending}", "want a label such as state=pending")
	fault("{kind: health, device: 1, watch: MOOD, state: warn}", `unknown watch "MOOD"`)
	fault("{kind: health, device: 1, watch: MEM, state: bad}", "want the state warn or fail")
	fault("{kind: leak, rate: 0}", "at least 1 MiB")
	fault("{kind: crash, device: 1}", `unknown key "device"`)
	fault("{kind: hang, device: 1, for: 1s, while: a}", "while replaces at and for")
	fault("{kind: hang, device: 12}", "device 12: the node has 8")
	fault("{kind: lost, switch: 6}", "switch 6: the node has 6")
	fault("{kind: crash}", "--isolation=process")
	process := func(in, want string) {
		t.Helper()
		f("processes: ["+in+"]", want)
	}
	process("{device: 0}", `a process needs the key "pid"`)
	process("{device: 0, pid: 0}", "PIDs are 1 to 4194304")
	process("{device: 0, pid: 1, busy: 101}", "percentage")
	process("{device: 8, pid: 1}", "device 8: the node has 8")
	process("{device: 0, pid: 1, at: 1s, while: /x}", "while replaces")
	for _, o := range []Options{{Profile: "dgx-h1000"}, {Devices: -1}, {Devices: maxDevices + 1}, {Spec: &Spec{Faults: []Fault{{}}}}} {
		_, err := Factory(o)
		testkit.ErrorIf(t, err == nil, "%+v: no error", o)
	}
}

// FuzzParseSpec checks that ParseSpec does not panic, and that NewWorld makes a node from a parsed spec or returns an error.
func FuzzParseSpec(f *testing.F) {
	f.Add(goodSpec)
	f.Add("faults: [{kind: devices, devices: 0}]")
	f.Add("faults: [{kind: hang, device: &p [*p]}]")
	f.Add("faults: &p [*p, ~]")
	f.Add("? {a: b}\n: c\n")
	f.Add("<<: {profile: x}")
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseSpec(strings.NewReader(in))
		if err != nil {
			return
		}
		if w, err := NewWorld(Options{Spec: s}); err == nil {
			w.Release()
		}
	})
}

// TestReadme parses the scripts in README.md and checks that it explains every name.
func TestReadme(t *testing.T) {
	text := testkit.Get(os.ReadFile("README.md"))(t)
	scripts := 0
	for i, block := range strings.Split(string(text), "```") {
		if script, ok := strings.CutPrefix(block, "yaml\n"); ok && i%2 == 1 {
			scripts++
			spec, err := ParseSpec(strings.NewReader(script))
			testkit.FatalIf(t, err != nil, "script in README.md: %v\n%s", err, script)
			newWorld(t, Options{Spec: spec})
		}
	}
	testkit.Equal(t, "scripts in README.md", 2, scripts)
	for _, name := range append(append(Profiles(), Shapes()...), healthWatches()...) {
		testkit.ErrorIf(t, !strings.Contains(string(text), name), "README.md does not mention %q", name)
	}
}
