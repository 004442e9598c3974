package amd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/urfave/cli/v3"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// operatorConfig returns the configuration for an environment and a command line.
func operatorConfig(t *testing.T, env environment, args ...string) (*Extension, *config.Config, error) {
	t.Helper()
	e, set := &Extension{}, config.NewSet(env.Lookup)
	for _, name := range []string{"health", "health-amd-socket", "health-directory"} { // flags of another extension
		if !slices.ContainsFunc(set.Flags(), func(f *config.Flag) bool { return f.Name == name }) {
			set.Add(config.Section{Origin: config.Own, Flags: []config.Flag{{Name: name, Value: config.Text(new(string))}}})
		}
	}
	e.Flags(set)
	root := &cli.Command{Flags: set.CLI(), Action: func(context.Context, *cli.Command) error { return nil }}
	must(t, root.Run(t.Context(), append([]string{"warpgauge"}, args...)))
	c, err := set.Config()
	return e, c, err
}

// TestOperatorDefaults: settings of AMD's operator, their consequences, and the settings that override them.
func TestOperatorDefaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	env := func(more ...string) environment {
		e := environment{operatorPort: "4999", operatorRelaxed: "true", "DS_NODE_NAME": "node-7", "WARPGAUGE_AMD_CONFIG": file, "DCGM_POD_RESOURCES_KUBELET_SOCKET": filepath.Join(dir, "kubelet.sock")}
		for i := 0; i < len(more); i += 2 {
			e[more[i]] = more[i+1]
		}
		return e
	}
	write(`{"ServerPort": 5001, "CommonConfig": {"Logging": {"Level": "warn"}}, "GPUConfig": {"Selector": "1", "ExtraPodLabels": {"a": "b"}}}`)
	type row struct{ address, names, socket, jobs, level, devices string }
	f := func(name string, want row, kubernetes bool, e environment, args ...string) {
		t.Helper()
		x, c, err := operatorConfig(t, e, args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		got := row{c.Web.Address, c.FieldNames, x.flag("health-amd-socket"), c.HPCJobDir, c.LogLevel().String(), c.GPUs.String()}
		if got != want || c.Kubernetes.Enabled != kubernetes {
			t.Errorf("%s: got %+v, kubernetes %v; want %+v, %v", name, got, c.Kubernetes.Enabled, want, kubernetes)
		}
	}
	as := row{":4999", "as-written,amd", pluginSocket, jobDirectory, "warn", "g:1"}
	f("as the operator starts it", as, true, env())
	t.Cleanup(func() { operatorDirectory = filepath.Dir(pluginSocket) })
	operatorDirectory = dir
	if x, _, err := operatorConfig(t, env()); err != nil || x.flag("health-directory") != dir+"/warpgauge" {
		t.Errorf("the node's directory: %q, %v", x.flag("health-directory"), err)
	}
	with := func(change func(*row)) row { r := as; change(&r); return r }
	f("behind the proxy", with(func(r *row) { r.address = "127.0.0.1:4999" }), true, env(), "--bind=127.0.0.1")
	f("a dash", with(func(r *row) { r.address = "127.0.0.1:4999" }), true, env(), "-bind", "127.0.0.1")
	f("IPv6", with(func(r *row) { r.address = "[::1]:4999" }), true, env(), "--bind=[::1]")
	f("a flag beats it", with(func(r *row) { r.address = ":9400" }), true, env(), "--address=:9400")
	f("a variable beats it", with(func(r *row) { r.names = "new"; r.address = ":9401" }), true, env("WARPGAUGE_FIELD_NAMES", "new", "DCGM_EXPORTER_LISTEN", ":9401"))
	f("AMD's switches", with(func(r *row) { r.jobs = "" }), false, env(), "--enable-slurm-scl=false", "--enable-k8s-scl=false")
	f("no socket, no jobs", with(func(r *row) { r.socket, r.jobs, r.devices = "", "", "f" }), true, env(), "--health-amd-socket=", "--hpc-job-mapping-dir=", "-d", "f")
	f("health is off", with(func(r *row) { r.socket = "" }), true, env(), "--health=off")
	f("no kubelet", as, false, env("DCGM_POD_RESOURCES_KUBELET_SOCKET", "/nowhere/kubelet.sock"))
	f("the file's port", with(func(r *row) { r.address = ":5001" }), true, env(operatorPort, ""))
	f("the file alone", row{":5001", "as-written,amd", "", "", "warn", "g:1"}, false, environment{}, "--amd-config", file)
	f("AMD's name of the flag", row{":5001", "as-written,amd", "", "", "warn", "g:1"}, false, environment{}, "--amd-metrics-config", file)
	f("a Service's variable", row{":9400", "as-written", "", "", "info", "f"}, false, environment{operatorPort: "tcp://10.96.0.7:5000"})
	f("none of it", row{":9400", "as-written", "", "", "info", "f"}, false, environment{"DS_NODE_NAME": "node-7"})
	write(`{"CommonConfig": {"HealthService": {"Enable": false}}}`)
	f("AMD's port", row{":5000", "as-written,amd", "", jobDirectory, "info", "f"}, true, env(operatorPort, ""))

	_, c, _ := operatorConfig(t, env(), "--monitor-gpu=false")
	testkit.Equal(t, "--rocm with --monitor-gpu=false", config.Off, c.ROCm)
	for _, name := range []string{"", "node-8"} {
		want := "node-7"
		e := env()
		if name != "" {
			e["NODE_NAME"], want = name, name
		}
		if got, err := config.Default().Hostname(e.Lookup, os.Hostname); got != want || err != nil {
			t.Errorf("hostname %q %v, want %q", got, err, want)
		}
	}

	// A file named by the user must exist and be valid; the operator's file may be absent or invalid.
	write(`{`)
	for _, e := range []environment{env(), {}} {
		_, _, err := operatorConfig(t, e, "--amd-config", file)
		testkit.Has(t, "a bad file that was named", fmt.Sprint(err), "it is not JSON")
	}
	if _, _, err := operatorConfig(t, environment{}, "--amd-config", file+"x"); err == nil {
		t.Error("no file although one was named")
	}
	for _, bad := range []string{"x", "70000", "-1"} {
		_, _, err := operatorConfig(t, environment{operatorPort: bad})
		testkit.Has(t, "port "+bad, fmt.Sprint(err), operatorPort)
	}
	x, _, err := operatorConfig(t, environment{}, "--bind=127.0.0.1", "--address=:9400", "--exit-on-agent-down", "--monitor-nic=false")
	must(t, err)
	var texts []string
	for _, n := range x.set.Notices() {
		texts = append(texts, n.Text)
	}
	want := []string{"--exit-on-agent-down has no effect: there is no agent; what fails is tried again", "--bind is not used: --address is :9400"}
	testkit.Equal(t, "notices", want, texts)
}

// TestOperatorsFile: the default file may come later. Once it was valid, its names stay in use.
func TestOperatorsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	e, c, err := operatorConfig(t, environment{operatorPort: "0"})
	must(t, err)
	e.path = file
	counters := c.Counters("", nil)
	read := func(when, text, prefix string, bad bool) {
		t.Helper()
		if text != "" {
			must(t, os.WriteFile(file, []byte(text), 0o600))
		}
		in, err := counters.Read(t.Context(), []byte("x"))
		testkit.Equal(t, fmt.Sprintf("%s: there is an error, and it is %v", when, err), bad, err != nil)
		if err != nil {
			return
		}
		list, _ := c.Named(field.List{}, in)
		testkit.Equal(t, when+": prefix", prefix, list.Dialect.Names.(*Names).Prefix)
	}
	read("no file", "", "", false)
	if !slices.Contains(counters.Paths(), file) {
		t.Errorf("%q is not watched: %q", file, counters.Paths())
	}
	read("still none", "", "", false)
	read("a bad one", "{", "", true)
	read("a good one", `{"CommonConfig": {"MetricsFieldPrefix": "p_"}}`, "p_", false)
	must(t, os.Remove(file))
	read("it is gone", "", "", true)
}

// TestTogether: names with the same reason share a message.
func TestTogether(t *testing.T) {
	got := together([]string{"A: no", "B: other: thing", "C: no", "no field is left", "D: no", "E: no", "F: no", "G: no"})
	want := []string{"A, C, D, E, F and 1 more: no", "B: other: thing", "no field is left"}
	testkit.Equal(t, "notices", want, got)
}
