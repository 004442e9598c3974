package doctor

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/tree"
	"warpgauge/pkg/field"
)

// with returns a copy of a tree with additional files; a name with - removes the files with that prefix.
func with(base map[string]string, more ...string) map[string]string {
	out := map[string]string{}
	for k, v := range base {
		out[k] = v
	}
	for i := 0; i < len(more); i++ {
		if name, ok := strings.CutPrefix(more[i], "-"); ok {
			for k := range out {
				if strings.HasPrefix(k, name) {
					delete(out, k)
				}
			}
			continue
		}
		out[more[i]] = more[i+1]
		i++
	}
	return out
}

// healthy is a machine with an NVIDIA GPU and everything it needs.
var healthy = map[string]string{
	"proc/sys/kernel/osrelease":                          "6.8.0-45-generic\n",
	"etc/os-release":                                     "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 13\"\n",
	"proc/self/status":                                   "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGroups:\t44 992\nCapEff:\t0000000000000000\n",
	"proc/self/cgroup":                                   "0::/system.slice/warpgauge.service\n",
	"sys/bus/pci/devices/0000:3b:00.0/vendor":            "0x10de\n",
	"sys/bus/pci/devices/0000:3b:00.0/class":             "0x030200\n",
	"sys/bus/pci/devices/0000:3b:00.0/driver":            "-> ../nvidia",
	"sys/module/nvidia/version":                          "550.54.15\n",
	"proc/driver/nvidia/version":                         "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n",
	"dev/nvidiactl":                                      "",
	"dev/nvidia0":                                        "",
	"dev/nvidia-uvm":                                     "",
	"run/nvidia-persistenced/socket":                     "",
	"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15": "",
	"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1":         "-> libnvidia-ml.so.550.54.15",
}

// fakeExporter returns fixed answers.
type fakeExporter struct {
	devices *apiv1.Devices
	fields  *apiv1.Fields
	health  *apiv1.Health
	list    *apiv1.List
	events  *apiv1.Events
	page    string
	err     error
	hangs   chan struct{}
}

func (e *fakeExporter) URL() string { return "http://localhost:9400" }

func answer[T any](ctx context.Context, e *fakeExporter, v *T) (*T, error) {
	if e.hangs != nil {
		<-e.hangs
	}
	if e.err != nil {
		return nil, e.err
	}
	if v == nil {
		v = new(T)
	}
	return v, nil
}

func (e *fakeExporter) Devices(ctx context.Context) (*apiv1.Devices, error) {
	return answer(ctx, e, e.devices)
}
func (e *fakeExporter) Fields(ctx context.Context, _, _ []string) (*apiv1.Fields, error) {
	return answer(ctx, e, e.fields)
}
func (e *fakeExporter) Health(ctx context.Context) (*apiv1.Health, error) {
	return answer(ctx, e, e.health)
}
func (e *fakeExporter) List(ctx context.Context) (*apiv1.List, error) { return answer(ctx, e, e.list) }
func (e *fakeExporter) Events(ctx context.Context, _ time.Time, _ int) (*apiv1.Events, error) {
	return answer(ctx, e, e.events)
}
func (e *fakeExporter) Page(_ context.Context, _ string, w io.Writer) error {
	if e.page == "" {
		return errors.New("connection refused")
	}
	_, err := io.WriteString(w, e.page)
	return err
}

// serving returns an exporter with one GPU that is up.
func serving() *fakeExporter {
	return &fakeExporter{
		devices: &apiv1.Devices{
			Hostname: "node", Version: "1.0", Collectors: []apiv1.Collector{{Name: "nvml", Vendor: "NVIDIA", Up: true}, {Name: "rocm", Vendor: "AMD", Cause: "not_loaded", Reason: "no AMD GPU"}},
			Devices: []apiv1.Device{{ID: "GPU-1", Kind: "gpu", State: "up", Status: apiv1.Status{Word: "up"}, GPU: "0"}},
		},
		fields: &apiv1.Fields{Devices: []apiv1.DeviceFields{{ID: "GPU-1", Fields: []apiv1.Field{{Name: "DCGM_FI_DEV_GPU_TEMP"}}}}},
		health: &apiv1.Health{State: "ok", Ready: true, Devices: []apiv1.DeviceHealth{{ID: "GPU-1", State: "ok"}}},
		list:   &apiv1.List{Source: "built in", Fields: make([]apiv1.ListField, 30)},
		page:   "# HELP warpgauge_build_info x\nwarpgauge_build_info 1\nDCGM_FI_DEV_GPU_TEMP 40\n",
	}
}

func examine(t *testing.T, files map[string]string, change func(*Options)) *Result {
	t.Helper()
	o := Options{
		Version: "1.0", Root: tree.Write(t, files), Exporter: serving(), Limit: time.Second,
		access:  func(string, bool) error { return nil },
		journal: func(context.Context) ([]byte, error) { return []byte("2026-01-01 INFO started\n"), nil },
	}
	if change != nil {
		change(&o)
	}
	return Run(t.Context(), o)
}

// want checks that exactly one finding of a check has all texts, and returns it.
func want(t *testing.T, what string, r *Result, check string, s Severity, texts ...string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check && f.Severity == s && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(f.Finding+" "+f.Do, text) }) {
			testkit.ErrorIf(t, s == Problem && f.Do == "", "%s: %q does not say what to do", what, f.Finding)
			return
		}
	}
	t.Errorf("%s: no finding %q of %s with %q in\n%s", what, s, check, texts, table(t, r))
}

func table(t *testing.T, r *Result) string {
	t.Helper()
	var b strings.Builder
	must(t, r.Table(&b))
	return b.String()
}

func TestHealthy(t *testing.T) {
	r := examine(t, healthy, nil)
	if r.Wrong() || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != OK }) {
		t.Errorf("something is wrong with a healthy machine:\n%s", table(t, r))
	}
	want(t, "healthy", r, "NVIDIA driver", OK, "1 NVIDIA GPU, kernel module nvidia 550.54.15")
	want(t, "healthy", r, "NVIDIA device nodes", OK, "device nodes of 1 NVIDIA GPU can be opened")
	want(t, "healthy", r, "NVIDIA library", OK, "libnvidia-ml.so.550.54.15 is of the loaded driver")
	want(t, "healthy", r, "exporter", OK, "version 1.0")
	want(t, "healthy", r, "devices", OK, "1 GPU, all devices are up")
	want(t, "healthy", r, "field list", OK, "30 fields from built in")
	h := r.facts.Host
	testkit.ErrorIf(t, h.Kernel != "6.8.0-45-generic" || h.OS != "Debian GNU/Linux 13" || h.User != "1000" || !slices.Equal(h.Groups, []string{"44", "992"}), "host: %+v", h)
	testkit.Has(t, "table", table(t, r), "no problem was found")
}

// TestFaults: doctor finds each fault by name and tells what to do.
func TestFaults(t *testing.T) {
	f := func(what string, files map[string]string, change func(*Options), check string, s Severity, texts ...string) {
		t.Helper()
		r := examine(t, files, change)
		want(t, what, r, check, s, texts...)
		if r.Wrong() != slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Problem }) || s == Problem && !r.Wrong() {
			t.Errorf("%s: Wrong is %v", what, r.Wrong())
		}
		nodes := func(s Severity) bool {
			return slices.ContainsFunc(r.Findings, func(f Finding) bool { return strings.HasSuffix(f.Check, "nodes") && f.Severity == s })
		}
		if nodes(Problem) && (s == OK || nodes(OK)) {
			t.Errorf("%s: both a problem of device nodes and ok in\n%s", what, table(t, r))
		}
	}
	denied := func(err error, of string) func(*Options) {
		return func(o *Options) {
			o.access = func(path string, _ bool) error {
				if strings.HasSuffix(path, of) {
					return err
				}
				return nil
			}
		}
	}
	exporter := func(change func(*fakeExporter)) func(*Options) {
		return func(o *Options) {
			e := serving()
			change(e)
			o.Exporter = e
		}
	}
	device := func(state, cause, reason string) func(*Options) {
		return exporter(func(e *fakeExporter) {
			d := &e.devices.Devices[0]
			d.State, d.Cause, d.Status = state, cause, apiv1.Status{Word: state, Why: reason}
		})
	}
	collector := func(c apiv1.Collector) func(*Options) {
		return exporter(func(e *fakeExporter) { e.devices.Collectors = []apiv1.Collector{c} })
	}
	absent := func(reason, detail string) func(*Options) {
		return exporter(func(e *fakeExporter) {
			e.fields.Devices[0].Fields = []apiv1.Field{{Name: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Absent: &apiv1.Absence{Reason: reason, Detail: detail}}}
		})
	}
	bare := with(healthy, "-sys/module/nvidia", "-proc/driver", "-dev/nvidia", "-sys/bus/pci/devices/0000:3b:00.0/driver")
	f("driver not loaded", bare, nil, "NVIDIA driver", Problem, "1 NVIDIA GPU on the PCI bus, but the kernel module nvidia is not loaded", "modprobe nvidia")
	f("nouveau", with(bare, "sys/module/nouveau/x", ""), nil, "NVIDIA driver", Problem, "nouveau", "blacklist")
	f("no device nodes", with(healthy, "-dev/nvidiactl"), nil, "NVIDIA device nodes", Problem, "there is no /dev/nvidiactl", "nvidia-modprobe")
	f("container without GPUs", with(healthy, "-dev/nvidia", "run/.containerenv", ""), nil, "NVIDIA device nodes", Problem, "this container has no /dev/nvidiactl", "--gpus all")
	two := with(healthy, "sys/bus/pci/devices/0000:5e:00.0/vendor", "0x10de\n", "sys/bus/pci/devices/0000:5e:00.0/class", "0x030200\n")
	f("a GPU without a node", two, nil, "NVIDIA device nodes", Note, "2 NVIDIA GPUs on the PCI bus, device nodes of 1")
	f("a closed node that is not needed", healthy, denied(unix.EACCES, "nvidia-uvm"), "NVIDIA device nodes", OK, "device nodes of 1 NVIDIA GPU can be opened")
	f("a driver without GPUs", with(healthy, "-dev/nvidia", "-sys/bus/pci"), nil, "NVIDIA driver", OK, "kernel module nvidia 550.54.15 is loaded")
	f("no GPU's node", with(healthy, "-dev/nvidia0"), nil, "NVIDIA device nodes", Problem, "no device node of a GPU, /dev/nvidia0")
	f("no permission", healthy, denied(unix.EACCES, "nvidia0"), "NVIDIA device nodes", Problem, "user 1000 cannot open /dev/nvidia0: permission denied", "SupplementaryGroups=")
	f("device control group", healthy, denied(unix.EPERM, "nvidiactl"), "NVIDIA device nodes", Problem, "cannot open /dev/nvidiactl: operation not permitted", "device control group")
	f("no library", with(healthy, "-usr/lib"), nil, "NVIDIA library", Problem, "libnvidia-ml.so.1 is not in any", "NVIDIA_DRIVER_CAPABILITIES")
	f("other library", with(healthy, "sys/module/nvidia/version", "535.104.05\n"), nil, "NVIDIA library", Problem, "the kernel module is 535.104.05 and the library another", "libnvidia-ml.so.550.54.15", "restart the machine")
	f("library of a driver container", with(healthy, "-usr/lib", "run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15", ""), nil, "NVIDIA library", OK, "/run/nvidia/driver/usr/lib")
	f("no persistence daemon", with(healthy, "-run/nvidia-persistenced"), nil, "NVIDIA persistence", Note, "nvidia-persistenced does not run")
	f("persistence mode off", healthy, exporter(func(e *fakeExporter) {
		e.fields.Devices[0].Fields = []apiv1.Field{{Name: "DCGM_FI_DEV_PERSISTENCE_MODE", Value: new(float64)}}
	}), "NVIDIA persistence", Note, "persistence mode is off on 1 GPU")

	amd := with(healthy, "-sys/bus/pci", "-sys/module/nvidia", "-proc/driver", "-dev/nvidia",
		"sys/bus/pci/devices/0000:c1:00.0/vendor", "0x1002", "sys/bus/pci/devices/0000:c1:00.0/class", "0x120000", "dev/kfd", "", "dev/dri/renderD128", "")
	f("amdgpu not loaded", amd, nil, "AMD driver", Problem, "1 AMD GPU on the PCI bus, but the kernel module amdgpu is not loaded", "modprobe amdgpu")
	f("GPU without a driver", with(amd, "sys/module/amdgpu/version", "6.10.5\n"), nil, "AMD driver", Problem, "1 AMD GPU, none with the driver amdgpu")
	loaded := with(amd, "sys/bus/pci/devices/0000:c1:00.0/driver", "-> ../amdgpu", "sys/module/amdgpu/version", "6.10.5\n")
	f("amdgpu", loaded, nil, "AMD driver", OK, "1 AMD GPU, kernel module amdgpu 6.10.5")
	f("no access to kfd", loaded, denied(unix.EACCES, "kfd"), "AMD device nodes", Note, "cannot open /dev/kfd")

	f("no exporter", healthy, exporter(func(e *fakeExporter) { e.err, e.page = apiv1.ErrNoAnswer, "" }), "exporter", Problem, "no exporter answers", "systemctl start warpgauge", "warpgauge devices")
	f("old exporter", healthy, exporter(func(e *fakeExporter) { e.err = apiv1.ErrNoAPI }), "exporter", Unknown, "has no JSON API", "upgrade")
	f("dcgm-exporter at the port", healthy, exporter(func(e *fakeExporter) { e.err, e.page = apiv1.ErrNoAPI, "DCGM_FI_DEV_GPU_TEMP 40\n" }), "exporter", Problem, "dcgm-exporter answers at http://localhost:9400", "--address")
	f("other version", healthy, exporter(func(e *fakeExporter) { e.devices.Version = "0.9" }), "exporter", Note, "is version 0.9, doctor 1.0")
	f("exporter hangs", healthy, exporter(func(e *fakeExporter) { e.err, e.page = context.DeadlineExceeded, "" }), "exporter", Problem, "context deadline exceeded")

	f("collector in error", healthy, collector(apiv1.Collector{Name: "nvml", Cause: "error", Reason: "cannot open: Unknown Error"}), "collectors", Problem, "nvml does not work: cannot open")
	f("nothing loaded although there is a GPU", healthy, collector(apiv1.Collector{Name: "nvml", Vendor: "NVIDIA", Cause: "not_loaded", Reason: "no library"}), "collectors", Problem, "nvml does not work: no library")
	f("nothing loaded without a GPU", with(healthy, "-sys/bus/pci"), collector(apiv1.Collector{Name: "nvml", Vendor: "NVIDIA", Cause: "not_loaded", Reason: "no library"}), "collectors", OK, "nvml is not in use: no library")
	besideNVML := func(reason string) func(*Options) {
		return exporter(func(e *fakeExporter) {
			e.devices.Collectors = []apiv1.Collector{{Name: "nvml", Vendor: "NVIDIA", Up: true}, {Name: "dcgm", Vendor: "NVIDIA", Cause: "not_loaded", Reason: reason}}
		})
	}
	f("a host engine without DCGM's library", healthy, besideNVML(`host engine "nvidia-dcgm:5555" is not used: no libdcgm.so.4`),
		"collectors", Problem, `the DCGM host engine is not in use: host engine "nvidia-dcgm:5555"`, "image.variant=dcgm")
	f("no DCGM, and none asked for", healthy, besideNVML("no libdcgm.so.4"), "collectors", OK, "dcgm is not in use")
	f("other versions of DCGM", healthy, collector(apiv1.Collector{Name: "dcgm", Cause: "version_mismatch", Reason: "4.2 and 4.4"}), "collectors", Problem, "4.2 and 4.4", "same version")
	f("profiling taken", healthy, collector(apiv1.Collector{Name: "dcgm", Cause: "error", Reason: "watch profiling fields: in use [DCGM -33]"}), "collectors", Problem, "another program has the profiling hardware", "Nsight")
	f("left out", healthy, collector(apiv1.Collector{Name: "nvml", Up: true, Reason: "devices that cannot be read or shown: 1"}), "collectors", Problem, "nvml is in use: devices", "MIG")
	f("standby", healthy, collector(apiv1.Collector{Name: "nvml", Cause: "standby", Reason: "dcgm supplies the GPUs"}), "collectors", Note, "dcgm supplies the GPUs")

	f("hung call", healthy, device("stalled", "hung_call", "a call has not returned for 35s"), "devices", Problem, "stalled: GPU 0: a call has not returned for 35s", "kernel log")
	f("hung child", healthy, device("stalled", "child_stuck", "the process does not end"), "devices", Problem, "does not end", "restart the machine")
	f("lost", healthy, device("lost", "lost", "GPU is lost"), "devices", Problem, "XID 79")
	f("released", healthy, device("released", "released", "released by an operator"), "devices", Note, "released by an operator")
	f("all stalled", healthy, exporter(func(e *fakeExporter) {
		e.devices.Devices = []apiv1.Device{{ID: "a", Kind: "gpu", State: "stalled", Status: apiv1.Status{Word: "unknown"}, GPU: "0"}, {ID: "b", Kind: "gpu", State: "stalled", Status: apiv1.Status{Word: "unknown"}, GPU: "1"}}
	}), "devices", Problem, "all 2 GPUs are stalled")
	f("no device", healthy, exporter(func(e *fakeExporter) { e.devices.Devices = nil }), "devices", Problem, "no device, although the PCI bus has 1 GPU")
	f("simulated", healthy, exporter(func(e *fakeExporter) { e.devices.Simulated = true }), "devices", OK, "1 GPU (simulated)")

	f("bad health", healthy, exporter(func(e *fakeExporter) {
		e.devices.Devices[0].State, e.devices.Devices[0].Status.Word = "released", "failed"
		e.devices.Devices[0].Status.Why = "a row; action: replace"
	}), "devices", Problem, "failed: GPU 0: a row; action: replace")
	f("not ready", healthy, exporter(func(e *fakeExporter) { e.health.Reasons = []string{"no GPU that is required"} }), "health", Problem, "not ready: no GPU")
	f("collector that is not ready", healthy, exporter(func(e *fakeExporter) { e.health.Reasons = []string{"collector rocm: no AMD GPU"} }), "health", OK, "ok")
	f("nothing to read", healthy, exporter(func(e *fakeExporter) {
		e.health.Reasons, e.devices.Collectors[0].Cause = []string{"collector nvml: nothing to read"}, "nothing_to_read"
	}), "health", Problem, "nothing to read")
	f("empty list", healthy, exporter(func(e *fakeExporter) { e.list.Fields = nil }), "field list", Problem, "has no field")
	f("list error", healthy, exporter(func(e *fakeExporter) { e.list.LastError = "line 3: gouge" }), "field list", Problem, "line 3: gouge", "warpgauge check")

	delivered := func(r apiv1.RemoteList) func(*Options) {
		return exporter(func(e *fakeExporter) { e.list.Remote = &r })
	}
	f("refused list", healthy, delivered(apiv1.RemoteList{Status: "refused", Text: "the list is refused", Refused: []apiv1.Refusal{{Line: 3, Text: "too short"}}}), "field list", Problem, "the list is refused; line 3: too short", "check --guard")
	f("list that fails", healthy, delivered(apiv1.RemoteList{Status: "failed", Text: "no session"}), "field list", Problem, "no session", "log of the exporter")
	f("server of lists away", healthy, delivered(apiv1.RemoteList{Status: "unreachable", Unreachable: "connection refused"}), "field list", Problem, "connection refused", "--remote-url")
	f("list that is not kept", healthy, delivered(apiv1.RemoteList{Status: "applied", Unkept: "disk full"}), "field list", Problem, "disk full", "--remote-directory")

	f("permission", healthy, absent("permission", "NVML refuses it to this user"), "absent values", Problem, "NVML refuses it", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "CAP_SYS_ADMIN")
	f("old driver", healthy, absent("no_symbol", "driver 470.1 lacks GPM"), "absent values", Note, "driver 470.1 lacks GPM", "upgrade the driver")
	f("profiling field taken", healthy, absent("permission", "in use [DCGM -33]"), "absent values", Problem, "Nsight")
	f("as it should be", healthy, absent("unsupported", "no such sensor"), "absent values", OK)

	f("mapping down", healthy, exporter(func(e *fakeExporter) {
		e.page += "warpgauge_mapping_up{mapping=\"pod_metadata\"} 0\nwarpgauge_mapping_up{mapping=\"processes\"} 1\n"
	}),
		"mappings", Problem, "no answer for the mapping pod_metadata", "ClusterRole")
	f("mappings", healthy, exporter(func(e *fakeExporter) { e.page += "warpgauge_mapping_up{mapping=\"pod_resources\"} 1\n" }), "mappings", OK, "1 mapping")

	f("no journal", healthy, func(o *Options) {
		o.journal = func(context.Context) ([]byte, error) { return nil, errors.New("there is no journalctl here") }
	}, "log", Unknown, "there is no journalctl here", "kubectl logs")
	f("log in a container", with(healthy, "run/.containerenv", ""), nil, "log", Unknown, "cannot be read from inside")
	f("errors in the log", healthy, func(o *Options) {
		o.journal = func(context.Context) ([]byte, error) {
			return []byte("x ERROR nvml: first\ny ERROR nvml: second\n"), nil
		}
	}, "log", Note, "2 errors", "nvml: second")
}

// TestNewVendor: the checks need no more of a vendor than its row, and of its collector than the API's answer.
func TestNewVendor(t *testing.T) {
	toy := &field.Vendor{Name: "Toy", PCI: "0x70e5", Module: "toys", Nodes: []string{"/dev/toy*"}}
	s := &system{access: func(string, bool) error { return nil }, root: tree.Write(t, map[string]string{
		"sys/bus/pci/devices/0000:3b:00.0/vendor": "0x70e5\n", "sys/bus/pci/devices/0000:3b:00.0/class": "0x120000\n",
		"dev/toy0": "", "dev/toy-control": "",
	})}
	apply := testkit.Get(s.driver(toy, nil)(t.Context()))(t)
	f := &Facts{Drivers: map[string]*Driver{}}
	f.exporter.devices = &apiv1.Devices{Collectors: []apiv1.Collector{{Name: "toy", Vendor: "Toy", Cause: "not_loaded", Reason: "no library"}}}
	apply(f)
	d, out := f.Drivers["Toy"], &findings{check: "toy"}
	checkDriver(f, out, toy, d)
	checkCollectors(f, out)
	d.Module = "1.0"
	checkNodes(f, out, toy, d)
	d.Nodes = d.Nodes[:1] // toy-control
	checkNodes(f, out, toy, d)
	checkLibrary(f, out, toy, d)
	checkPersistence(f, out, toy, d)
	r := &Result{Findings: out.all}
	want(t, "a new vendor", r, "toy", Problem, "1 Toy GPU on the PCI bus, but the kernel module toys is not loaded", "modprobe toys")
	want(t, "a new vendor", r, "toy", Problem, "toy does not work: no library")
	want(t, "a new vendor", r, "toy", OK, "device nodes of 1 Toy GPU can be opened")
	want(t, "a new vendor", r, "toy", Problem, "no device node of a GPU, /dev/toy0")
	testkit.Equal(t, "findings of\n"+table(t, r), 4, len(r.Findings))
}

// TestFlags: the settings come from the only running exporter and from the environment.
func TestFlags(t *testing.T) {
	proc := func(pid string, args ...string) map[string]string {
		return map[string]string{"proc/" + pid + "/comm": "warpgauge\n", "proc/" + pid + "/cmdline": strings.Join(append([]string{"warpgauge"}, args...), "\x00") + "\x00"}
	}
	f := func(what string, files map[string]string, environ, want, roots []string) {
		t.Helper()
		got := (&system{root: tree.Write(t, files)}).flags(environ)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || !slices.Equal(rootsOf(got), roots) {
			t.Errorf("%s: driver roots %q, flags differ (-want +got):\n%s", what, rootsOf(got), diff)
		}
	}
	f("nothing", nil, []string{"HOME=/root"}, nil, nil)
	f("a variable", nil, []string{"WARPGAUGE_NVML_DRIVER_ROOT=/a,/b"}, []string{"WARPGAUGE_NVML_DRIVER_ROOT=/a,/b"}, []string{"/a", "/b"})
	two := proc("5", "-k", "--nvml-driver-root=/c")
	maps.Copy(two, proc("6", "child", "-k"))
	f("a child", two, nil, []string{"-k", "--nvml-driver-root=/c"}, []string{"/c"})
	maps.Copy(two, proc("7", "-k"))
	f("two exporters", two, nil, nil, nil)
}

// TestHangs: a hanging probe is abandoned and reported.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		began := time.Now()
		r := examine(t, healthy, func(o *Options) {
			o.access = func(string, bool) error { <-never; return nil }
			o.journal = func(context.Context) ([]byte, error) { <-never; return nil, nil }
			o.Exporter = &fakeExporter{hangs: never}
		})
		testkit.AtMost(t, "time that it took", 12*time.Second, time.Since(began))
		for _, name := range []string{"NVIDIA", "log", "exporter"} {
			want(t, "hangs", r, "probes", Unknown, name+": it does not answer within")
		}
		close(never)
		synctest.Wait()
	})
}
