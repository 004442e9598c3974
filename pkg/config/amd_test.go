package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/pkg/field"
)

// TestAMDConfig has a row for each key of exporterconfig.proto.
func TestAMDConfig(t *testing.T) {
	blank := AMD{flags: map[string]string{}}
	for text, want := range map[string]AMD{
		`{}`:                   {},
		`{"ServerPort": 5001}`: {port: 5001},
		`{"serverport": 5001}`: {port: 5001}, // as Go reads the names of keys
		`{"ServerPort": null}`: {},
		`{"CommonConfig": {"MetricsFieldPrefix": "amd_"}}`:                                              {Names: field.AMD{Prefix: "amd_"}},
		`{"CommonConfig": {"HealthService": {"Enable": false}}}`:                                        {noHealth: true},
		`{"CommonConfig": {"HealthService": {"Enable": true}}}`:                                         {},
		`{"CommonConfig": {"HealthService": {"PollingRate": "1h"}}}`:                                    {Unused: []string{"CommonConfig.HealthService.PollingRate: health is judged every second"}},
		`{"CommonConfig": {"Logging": {"Level": "WARN"}}}`:                                              {Level: "warn"},
		`{"CommonConfig": {"Logging": {"Level": "fatal"}}}`:                                             {Level: "error"},
		`{"CommonConfig": {"Logging": {"Level": "loud"}}}`:                                              {Problems: []string{`CommonConfig.Logging.Level is "loud": write debug, info, warn or error`}},
		`{"CommonConfig": {"Logging": {"MaxFileSizeMB": 1}}}`:                                           {Unused: []string{"CommonConfig.Logging.MaxFileSizeMB: the log goes to standard error"}},
		`{"CommonConfig": {"Logging": {"MaxSizeMB": 1}}}`:                                               {Unused: []string{"CommonConfig.Logging.MaxSizeMB: the log goes to standard error"}},
		`{"CommonConfig": {"Logging": {"MaxBackups": 1}}}`:                                              {Unused: []string{"CommonConfig.Logging.MaxBackups: the log goes to standard error"}},
		`{"CommonConfig": {"Logging": {"MaxAgeDays": 1}}}`:                                              {Unused: []string{"CommonConfig.Logging.MaxAgeDays: the log goes to standard error"}},
		`{"CommonConfig": {"Logging": {"LogRotationDisable": true}}}`:                                   {Unused: []string{"CommonConfig.Logging.LogRotationDisable: the log goes to standard error"}},
		`{"CommonConfig": {"Debug": {"EnableAPI": true}}}`:                                              {flags: map[string]string{"enable-pprof": "true"}},
		`{"CommonConfig": {"Debug": {"EnableAPI": false}}}`:                                             {},
		`{"CommonConfig": {"ProfilerConfig": {"PtlDelay": 1}}}`:                                         {Unused: []string{"CommonConfig.ProfilerConfig: the profiler is not read"}},
		`{"GPUConfig": {"Selector": "0,2-3"}}`:                                                          {flags: map[string]string{"devices": "g:0,2-3"}},
		`{"GPUConfig": {"Selector": "all"}}`:                                                            {Problems: []string{`GPUConfig.Selector is "all", so all GPUs are reported: write a list such as 0,2-3`}},
		`{"GPUConfig": {"Selector": ""}}`:                                                               {},
		`{"GPUConfig": {"Fields": ["GPU_CLOCK", "gpu_health"]}}`:                                        {Names: field.AMD{Fields: []string{"GPU_CLOCK", "gpu_health"}}},
		`{"GPUConfig": {"Labels": ["GPU_UUID"]}}`:                                                       {Names: field.AMD{Labels: []string{"GPU_UUID"}}},
		`{"GPUConfig": {"CustomLabels": {"CLUSTER_NAME": "c1", "A": "b"}}}`:                             {Names: field.AMD{Custom: []field.NameValue{{Name: "A", Value: "b"}, {Name: "CLUSTER_NAME", Value: "c1"}}}},
		`{"GPUConfig": {"ExtraPodLabels": {"WORKLOAD_ID": "amd-workload-id"}}}`:                         {Names: field.AMD{PodLabels: []field.NameValue{{Name: "WORKLOAD_ID", Value: "amd-workload-id"}}}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_ECC_UNCORRECT_SDMA": 0}}}`:                            {},
		`{"GPUConfig": {"HealthThresholds": {"GPU_ECC_UNCORRECT_UMC": 5, "GPU_ECC_UNCORRECT_BIF": 1}}}`: {flags: map[string]string{"health-rules": "ras_uncorrected.pcie_bif=2,ras_uncorrected.umc=6"}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_ECC_UNCORRECT_UMC": -1}}}`:                            {Problems: []string{"GPUConfig.HealthThresholds.GPU_ECC_UNCORRECT_UMC: write a whole number that is not negative"}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_ECC_UNCORRECT_A,b": 1}}}`:                             {Problems: []string{`key "GPUConfig.HealthThresholds.GPU_ECC_UNCORRECT_A,b" is unknown and has no effect`}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_HEAT": 1}}}`:                                          {Problems: []string{`key "GPUConfig.HealthThresholds.GPU_HEAT" is unknown and has no effect`}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": ""}}}`:                                 {},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": "1h30m"}}}`:                            {flags: map[string]string{"health-rules": "cper_fatal=5400"}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": "0"}}}`:                                {},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": "-1h"}}}`:                              {Problems: []string{"GPUConfig.HealthThresholds.GPU_CPER_MAX_AGE: write a duration such as 1h"}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": 1}}}`:                                  {Problems: []string{"GPUConfig.HealthThresholds.GPU_CPER_MAX_AGE: write a duration such as 1h"}},
		`{"GPUConfig": {"ProfilerMetrics": {"all": true}}}`:                                             {Unused: []string{"GPUConfig.ProfilerMetrics: the profiler is not read"}},
		`{"GPUConfig": {"ProfilerConfig": {"SamplingInterval": 1}}}`:                                    {Unused: []string{"GPUConfig.ProfilerConfig: the profiler is not read"}},
		`{"NICConfig": {"Fields": ["NIC_TOTAL"]}}`:                                                      {Unused: []string{"NICConfig: network cards are not read"}},
		`{"IFOEConfig": {"Fields": ["IFOE_TOTAL_PORTS"]}}`:                                              {Unused: []string{"IFOEConfig: network cards are not read"}},
		`{"GPUConfig": {"Field": []}}`:                                                                  {Problems: []string{`key "GPUConfig.Field" is unknown and has no effect; did you mean GPUConfig.Fields?`}},
	} {
		got, err := parseAMD([]byte(text), "config.json")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if want.flags == nil {
			want.flags = blank.flags
		}
		want.name = "config.json"
		if d := cmp.Diff(&want, got, cmp.AllowUnexported(AMD{}), cmpopts.IgnoreUnexported(field.AMD{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
	for text, want := range map[string]string{
		"":                                    `configuration file "config.json": line 1, character 0: it is no JSON: unexpected end of JSON input`,
		"{\n  \"GPUConfig\": {,}\n}":          `configuration file "config.json": line 2, character 17: it is no JSON: invalid character ',' looking for beginning of object key string`,
		`[]`:                                  `configuration file "config.json": the file: write keys and values in braces`,
		`{"ServerPort": "5000"}`:              `configuration file "config.json": ServerPort: write a port`,
		`{"ServerPort": 70000}`:               `configuration file "config.json": ServerPort: write a port`,
		`{"GPUConfig": []}`:                   `configuration file "config.json": GPUConfig: write keys and values in braces`,
		`{"GPUConfig": {"Fields": "GPU"}}`:    `configuration file "config.json": GPUConfig.Fields: write a list of names`,
		`{"GPUConfig": {"CustomLabels": []}}`: `configuration file "config.json": GPUConfig.CustomLabels: write names with texts`,
	} {
		if _, err := parseAMD([]byte(text), "config.json"); err == nil || err.Error() != want {
			t.Errorf("%s: error %q, want %q", text, err, want)
		}
	}
}

// FuzzAMDConfig: what is read is used or named, and messages are one line.
func FuzzAMDConfig(f *testing.F) {
	for _, s := range []string{`{}`, `{"ServerPort":1}`, `{"GPUConfig":{"Fields":["A"],"HealthThresholds":{"GPU_ECC_UNCORRECT_UMC":1}}}`, `{"CommonConfig":{"Logging":{"Level":"x"}}}`, `[`, `{"a":{"b":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parseAMD(data, "config.json")
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("%q: message %q", data, err)
			}
			return
		}
		set := NewSet(environment{}.lookup)
		for name, text := range a.flags {
			if err := set.SetDefault(name, text, FromFile); err != nil {
				t.Fatalf("%q: %v", data, err)
			}
		}
		_, why := field.List{}.WithAMD(a.Names)
		for _, s := range slices.Concat(a.Problems, a.Unused, why) {
			if s == "" || strings.ContainsAny(s, "\r\n") {
				t.Fatalf("%q: message %q", data, s)
			}
		}
		if a.Restart(a) != nil {
			t.Fatalf("%q differs from itself", data)
		}
	})
}

// operatorConfig is the configuration of an environment and a command line.
func operatorConfig(t *testing.T, env environment, args ...string) (*Set, *Config, error) {
	t.Helper()
	set, err := parse(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := set.Config()
	return set, c, err
}

// TestOperatorDefaults: what AMD's operator sets, what follows of it, and what beats it.
func TestOperatorDefaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := func(more ...string) environment {
		e := environment{operatorPort: "4999", operatorRelaxed: "true", operatorNode: "node-7", "WARPGAUGE_AMD_CONFIG": file, "DCGM_POD_RESOURCES_KUBELET_SOCKET": filepath.Join(dir, "kubelet.sock")}
		for i := 0; i < len(more); i += 2 {
			e[more[i]] = more[i+1]
		}
		return e
	}
	write(`{"ServerPort": 5001, "CommonConfig": {"Logging": {"Level": "warn"}}, "GPUConfig": {"Selector": "1", "ExtraPodLabels": {"a": "b"}}}`)
	type row struct{ address, names, socket, jobs, level, devices string }
	f := func(name string, want row, kubernetes bool, e environment, args ...string) {
		t.Helper()
		set, c, err := operatorConfig(t, e, args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		got := row{c.Web.Address, c.FieldNames, set.find("health-amd-socket").Value.String(), c.HPCJobDir, c.LogLevel().String(), c.GPUs.String()}
		if got != want || c.Kubernetes.Enabled != kubernetes {
			t.Errorf("%s: got %+v, kubernetes %v; want %+v, %v", name, got, c.Kubernetes.Enabled, want, kubernetes)
		}
	}
	as := row{":4999", "as-written,amd", amdSocket, amdJobs, "warn", "g:1"}
	f("as the operator starts it", as, true, env())
	with := func(change func(*row)) row { r := as; change(&r); return r }
	f("behind the proxy", with(func(r *row) { r.address = "127.0.0.1:4999" }), true, env(), "--bind=127.0.0.1")
	f("a dash", with(func(r *row) { r.address = "127.0.0.1:4999" }), true, env(), "-bind", "127.0.0.1")
	f("IPv6", with(func(r *row) { r.address = "[::1]:4999" }), true, env(), "--bind=[::1]")
	f("a flag beats it", with(func(r *row) { r.address = ":9400" }), true, env(), "--address=:9400")
	f("a variable beats it", with(func(r *row) { r.names = "new"; r.address = ":9401" }), true, env("WARPGAUGE_FIELD_NAMES", "new", "DCGM_EXPORTER_LISTEN", ":9401"))
	f("AMD's switches", with(func(r *row) { r.jobs = "" }), false, env(), "--enable-slurm-scl=false", "--enable-k8s-scl=false")
	f("no socket, no jobs", with(func(r *row) { r.socket, r.jobs, r.devices = "", "", "f" }), true, env(), "--health-amd-socket=", "--hpc-job-mapping-dir=", "-d", "f")
	f("no kubelet", as, false, env("DCGM_POD_RESOURCES_KUBELET_SOCKET", "/nowhere/kubelet.sock"))
	f("the file's port", with(func(r *row) { r.address = ":5001" }), true, env(operatorPort, ""))
	f("the file alone", row{":5001", "as-written,amd", "", "", "warn", "g:1"}, false, environment{}, "--amd-config", file)
	f("AMD's name of the flag", row{":5001", "as-written,amd", "", "", "warn", "g:1"}, false, environment{}, "--amd-metrics-config", file)
	f("a Service's variable", row{":9400", "as-written", "", "", "info", "f"}, false, environment{operatorPort: "tcp://10.96.0.7:5000"})
	f("none of it", row{":9400", "as-written", "", "", "info", "f"}, false, environment{operatorNode: "node-7"})
	write(`{"CommonConfig": {"HealthService": {"Enable": false}}}`)
	f("AMD's port", row{":5000", "as-written,amd", "", amdJobs, "info", "f"}, true, env(operatorPort, ""))

	if _, c, _ := operatorConfig(t, env(), "--monitor-gpu=false"); c.ROCm != Off {
		t.Error("--monitor-gpu=false reads AMD's GPUs")
	}
	for _, name := range []string{"", "node-8"} {
		want := "node-7"
		e := env()
		if name != "" {
			e["NODE_NAME"], want = name, name
		}
		if got, err := Default().Hostname(e.lookup, os.Hostname); got != want || err != nil {
			t.Errorf("hostname %q %v, want %q", got, err, want)
		}
	}

	// A file that the user names must be there and good; the operator's need not.
	write(`{`)
	for _, e := range []environment{env(), {}} {
		if _, _, err := operatorConfig(t, e, "--amd-config", file); err == nil || !strings.Contains(err.Error(), "it is no JSON") {
			t.Errorf("a bad file that was named: %v", err)
		}
	}
	if _, _, err := operatorConfig(t, environment{}, "--amd-config", file+"x"); err == nil {
		t.Error("no file although one was named")
	}
	for _, bad := range []string{"x", "70000", "-1"} {
		if _, _, err := operatorConfig(t, environment{operatorPort: bad}); err == nil || !strings.Contains(err.Error(), operatorPort) {
			t.Errorf("port %q: %v", bad, err)
		}
	}
	set, _, err := operatorConfig(t, environment{}, "--bind=127.0.0.1", "--address=:9400", "--exit-on-agent-down", "--monitor-nic=false")
	var texts []string
	for _, n := range set.Notices() {
		texts = append(texts, n.Text)
	}
	want := []string{"--exit-on-agent-down has no effect: there is no agent; what fails is tried again", "--bind is not used: --address is :9400"}
	if d := cmp.Diff(want, texts); d != "" || err != nil {
		t.Errorf("notices (-want +got):\n%s%v", d, err)
	}
}

// TestOperatorsFile: the default file may come later; once it was good it stays.
func TestOperatorsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	_, c, err := operatorConfig(t, environment{operatorPort: "0"})
	if err != nil {
		t.Fatal(err)
	}
	c.Operator.File = file
	counters := c.Counters("", nil)
	read := func(when, text, prefix string, bad bool) {
		t.Helper()
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		in, err := counters.Read(t.Context(), []byte("x"))
		switch {
		case (err != nil) != bad:
			t.Errorf("%s: error %v", when, err)
		case err == nil && (in.AMD != nil) != (prefix != "") || in != nil && in.AMD != nil && in.AMD.Names.Prefix != prefix:
			t.Errorf("%s: got %+v, want prefix %q", when, in.AMD, prefix)
		}
	}
	read("no file", "", "", false)
	if !slices.Contains(counters.Paths(), file) {
		t.Errorf("%q is not watched: %q", file, counters.Paths())
	}
	read("still none", "", "", false)
	read("a bad one", "{", "", true)
	read("a good one", `{"CommonConfig": {"MetricsFieldPrefix": "p_"}}`, "p_", false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	read("it is gone", "", "", true)
}
