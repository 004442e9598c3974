package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warpgauge/collectors/fake"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
)

func TestHelpText(t *testing.T) {
	help := execute(t, nil, "--help")
	help.Want(t, 0, append(fake.Profiles(), "Usage:", "  check ", "  once ", "What is read:", "Needs --kubernetes.", "  --enable-nvml=auto|true|false\n", "  -n, --no-hostname\n", "Default: :9400.", "$DCGM_EXPORTER_LISTEN")...)
	for _, command := range []string{"check", "fields", "devices", "once", "ping"} {
		execute(t, nil, command, "--help").WantHelp(t, "warpgauge "+command+" [flags]", "All flags of warpgauge --help")
	}
	execute(t, nil, "help", "check").Want(t, 0, "warpgauge check [flags]")
	testkit.Lacks(t, "help, which has flags with effect", help.Out, "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE")
	// The first flags are those that most people need, each of them once.
	_, first, _ := strings.Cut(help.Out, "The flags that most people need:")
	first, _, _ = strings.Cut(first, "What is read:")
	testkit.Between(t, "flags that come first in\n"+first, 8, 12, strings.Count(first, "\n  -"))
	testkit.Times(t, 1, help.Out, "\n  -f, --collectors FILE\n")
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "pwsh"} {
		execute(t, nil, "completion", shell).Want(t, 0, "--generate-shell-completion")
	}
	execute(t, nil, "completion", "sh").Want(t, 1, "sh")
	for _, name := range moved {
		execute(t, nil, name, "--url=x").Want(t, 2, name+" is a command of warpctl now: warpctl "+name+" --help")
	}
}

func TestVersion(t *testing.T) {
	execute(t, nil, "version").Want(t, 0, "warpgauge ", "revision ", "go1.")
	execute(t, nil, "version", "--output=json").Want(t, 0, `"version": "`, `"go": "go1.`)
	execute(t, nil, "version", "x").Want(t, 1, `unexpected argument "x"`)
	execute(t, nil, "--version").Want(t, 0, "warpgauge version ")
	execute(t, nil, "-v").Want(t, 0, "warpgauge version ")
}

// What a person must put right ends with code 1 and says what it is.
func TestBadUsage(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent.csv")
	unknown := tempFile(t, "unknown.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, fine\nDCGM_FI_DEV_GPU_TEMPP, gauge, misspelt\n")
	bad := tempFile(t, "bad.csv", "DCGM_FI_DEV_GPU_TEMP, gouge, x\n\nDCGM_FI_DEV_FB_USED, counterr, y\n")
	for _, c := range []struct {
		env   environment
		args  []string
		texts []string
	}{
		{args: []string{"--no-such-flag"}, texts: []string{"unknown flag --no-such-flag", "see warpgauge --help"}},
		{args: []string{"--fake-devces=3"}, texts: []string{"did you mean --fake-devices?"}},
		{args: []string{"check", "--time-out=3s"}, texts: []string{"did you mean --timeout?", "see warpgauge check --help"}},
		{args: []string{"chek"}, texts: []string{`unknown command "chek" (did you mean check?)`}},
		{args: []string{"-k", "true"}, texts: []string{`unexpected argument "true": write --flag=true`}},
		{args: []string{"-c"}, texts: []string{"flag needs an argument: -c"}},
		{args: []string{"devices", "--timeout=x"}, texts: []string{"warpgauge: --timeout is \"x\": write a duration with its unit, such as 10s"}},
		{args: []string{"devices", "--all=x"}, texts: []string{"warpgauge: --all is \"x\": write true or false"}},
		{args: []string{"--strict", "-f", unknown}, texts: []string{unknown + ":2:", "DCGM_FI_DEV_GPU_TEMPP", "DCGM_FI_DEV_GPU_TEMP"}},
		{args: []string{"-c", "5", "-a", "x"}, texts: []string{"configuration:\n", "\n  --collect-interval", "\n  --address"}},
		{env: environment{"DCGM_EXPORTER_COLLECTORS": absent}, texts: []string{absent, "does not exist"}},
		{args: []string{"-f", bad}, texts: []string{"2 errors", bad + ":1:", "gouge", bad + ":3:", "counterr"}},
		{args: simulated("--fake-profile=cray-1"), texts: []string{`"cray-1"`, "dgx-h100"}},
		{args: simulated("--fake-spec=" + absent), texts: []string{absent}},
		{args: simulated("--fake-spec=" + tempFile(t, "spec.yaml", "no-such-key: 1\n")), texts: []string{"spec.yaml", "no-such-key"}},
		{args: []string{"once", "--format=json"}, texts: []string{"text or openmetrics"}},
		{args: []string{"once", "--samples=0"}, texts: []string{"from 1 to 16"}},
		{args: []string{"check", "a", "b"}, texts: []string{"one file"}},
	} {
		o := execute(t, c.env, c.args...)
		o.Want(t, 1, c.texts...)
		if !strings.Contains(o.Err, "warpgauge: ") && !slices.Contains(c.args, "check") || strings.Contains(o.Out, "Usage:") {
			t.Errorf("%q: a slip must be told on standard error, without the whole help\noutput: %s\nerrors: %s", c.args, o.Out, o.Err)
		}
	}
}

func TestCheck(t *testing.T) {
	good := tempFile(t, "good.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_POWER_USAGE, gauge, p\nDCGM_FI_DRIVER_VERSION, label, d\nDCGM_EXP_XID_ERRORS_COUNT, gauge, x\n")
	execute(t, nil, simulated("check", "-f", good)...).Want(t, 0,
		good+": 4 fields, 0 errors, 0 warnings", "fake: supplies 4 of 4 fields for 8 devices of kind gpu")
	execute(t, environment{"DCGM_EXPORTER_COLLECTORS": good}, simulated("check")...).Want(t, 0, good+": 4 fields")
	execute(t, nil, simulated("check")...).Want(t, 0, "fields, 0 errors")

	amd := tempFile(t, "amd.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, p\n")
	execute(t, nil, simulated("check", "--fake-profile=rtx4090", amd)...).Want(t, 0,
		"fake: supplies 1 of 2 fields for 2 devices of kind gpu", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE  unsupported  every gpu")

	typo := tempFile(t, "typo.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_GPU_UTLI, gauge, u\n")
	execute(t, nil, simulated("check", typo)...).Want(t, 0, typo+":2:1: warning:", "DCGM_FI_DEV_GPU_UTIL", "1 field, 0 errors, 1 warning")
	strict := execute(t, nil, simulated("check", "--strict", typo)...)
	strict.Want(t, 1, typo+":2:1: error:", "1 error")
	testkit.Equal(t, "standard error of check, whose findings are on standard output", "", strict.Err)

	execute(t, nil, "check", tempFile(t, "many.csv", strings.Repeat("DCGM_FI_DEV_NONE, gauge, x\n", 1500))).Want(t, 1, "none of the file's rows can be used (1500 in all)", "more problems are not listed", ": 0 fields, 1 error, ")

	inline := tempFile(t, "inline.yaml", "version: 1\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gouge}\n")
	execute(t, nil, "check", "--config-file="+inline).Want(t, 1, inline+":4:12: error: unknown type", "1 error")
	group := tempFile(t, "group.yaml", "version: 1\ncollection: {watchGroups: [{name: a, interval: 1s, fields: [X_*]}]}\n")
	execute(t, nil, "check", "--config-file="+group, good).Want(t, 0, good+": 4 fields") // a file that is named is checked alone
	execute(t, nil, "check", "--config-file="+group, "-f", good).Want(t, 1, `configuration file "`+group+`": watch group "a" names no field of the list (the list is `+good+")")

	execute(t, nil, "check", "--enable-only=nvml", "--enable-nvml=false", good).Want(t, 0, "no collector is enabled")
	closed := tempFile(t, "spec.yaml", "faults:\n- {kind: open-fails, message: library is gone}\n")
	execute(t, nil, simulated("check", "--fake-spec="+closed, good)...).Want(t, 0, "fake is not in use:", "library is gone")
}

func TestDevices(t *testing.T) {
	o := execute(t, nil, simulated("devices")...)
	o.Want(t, 0, "COLLECTOR", "NVIDIA H100 80GB HBM3 (simulated)", "00000000:1B:00.0")
	testkit.Times(t, 8, o.Out, "fake       up     gpu")

	mig := execute(t, nil, simulated("devices", "--fake-profile=dgx-a100-mig", "-d", "g:0+i:7")...)
	testkit.Times(t, 2, mig.Out, " gpu ") // GPU 2 is read for the health of its instance
	testkit.Times(t, 1, mig.Out, " instance ")

	none := execute(t, nil, "devices", "--enable-only=nvml")
	none.Want(t, 1, "no device found", "nvml is not in use:")
	testkit.Lacks(t, "without --enable-fake", none.Out, "simulated")
	execute(t, nil, simulated("devices", "-d", "g:99", "-s", "g:99")...).Want(t, 1, "no device found", "fake is not in use:", "--devices=g:99")
	testkit.Times(t, 4, execute(t, nil, simulated("devices", "-d", "g:99")...).Out, " switch ") // health judges them
}

func TestDevicesForScripts(t *testing.T) {
	lost := tempFile(t, "spec.yaml", "faults:\n- {kind: lost, device: 2}\n")
	o := execute(t, nil, simulated("devices", "--output=json", "--fake-spec="+lost)...)
	var got apiv1.Devices
	if err := json.Unmarshal([]byte(o.Out), &got); err != nil || o.Code != 0 {
		t.Fatalf("exit code %d, %v in\n%s", o.Code, err, o.Out)
	}
	for _, d := range got.Devices {
		testkit.ErrorIf(t, (d.State == "up") != (d.Reason == "") || (d.State == "lost") != (d.GPU == "2"), "GPU %s is %s with reason %q", d.GPU, d.State, d.Reason)
	}
	if want := []apiv1.Collector{{Name: "fake", Up: true}}; len(got.Devices) < 8 || !slices.Equal(got.Collectors, want) {
		t.Errorf("%d devices, collectors are %v, want %v", len(got.Devices), got.Collectors, want)
	}
	execute(t, nil, "devices", "--output=json", "--enable-only=nvml").Want(t, 1, `"devices": []`, `"name": "nvml"`, "no NVIDIA GPU")
}

func TestOnce(t *testing.T) {
	execute(t, nil, "once", "--enable-only=nvml").Want(t, 1, "no device found", "warpgauge_collector_up{")
	execute(t, nil, simulated("once", "x")...).Want(t, 1, `unexpected argument "x"`)
	text := execute(t, environment{"NODE_NAME": "node7"}, simulated("once")...)
	text.Want(t, 0, "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n", `hostname="node7"`, `warpgauge_collector_up{collector="fake"} 1`)
	testkit.Times(t, 8, text.Out, "\nDCGM_FI_DEV_GPU_TEMP{")
	if om := execute(t, nil, simulated("once", "--format=openmetrics")...); !strings.HasSuffix(om.Out, "# EOF\n") {
		t.Error("an OpenMetrics page must end in # EOF")
	}
	if none := execute(t, environment{"NODE_NAME": "x"}, simulated("once", "--exporter-metrics=none", "--hostname-label=Hostname", "-o")...); !strings.Contains(none.Out, `Hostname="x"`) ||
		!strings.Contains(none.Out, `uuid="GPU-`) || strings.Contains(none.Out, "warpgauge_") || strings.Contains(none.Out, "go_") {
		t.Errorf("--exporter-metrics=none, --hostname-label=Hostname or -o is not honoured:\n%s", none.Out)
	}

	// The command does not wait for fields that no device supplies.
	lacking := tempFile(t, "l.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, p\n")
	execute(t, nil, simulated("once", "--fake-profile=rtx4090", "-c", "3600000", "-f", lacking)...).Want(t, 0, "DCGM_FI_DEV_GPU_TEMP{")

	histogram := tempFile(t, "h.csv", "DCGM_FI_DEV_GPU_TEMP, histogram, t\n")
	counts := execute(t, nil, simulated("once", "-c", "10", "--samples=3", "-f", histogram)...)
	counts.Want(t, 0, "DCGM_FI_DEV_GPU_TEMP_bucket{")
	for _, line := range strings.Split(counts.Out, "\n") {
		testkit.ErrorIf(t, strings.HasPrefix(line, "DCGM_FI_DEV_GPU_TEMP_count") && (strings.HasSuffix(line, " 0") || strings.HasSuffix(line, " 1")), "after three samples: %s", line)
	}
}

// The manual page has every command and flag, and nothing that troff would take for a request.
func TestManual(t *testing.T) {
	o := execute(t, nil, "man")
	o.Want(t, 0, ".TH WARPGAUGE 1", ".SS fields\n", "[PATTERN...]", `  \-f, \-\-collectors FILE`, "$DCGM_EXPORTER_LISTEN", ".SS completion", `\-\-url`)
	requests := []string{".TH", ".SH", ".SS", ".B", ".BR", ".RI", ".I", ".br", ".PP", ".TP", ".nf", ".fi"}
	for line := range strings.Lines(o.Out) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		testkit.ErrorIf(t, (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'")) && !slices.Contains(requests, word), "troff would take this for a request: %q", line)
	}
	for _, f := range config.NewSet(environment{}.Lookup).Flags() {
		testkit.Has(t, "manual page", o.Out, strings.ReplaceAll(config.Dashed(f.Name), "-", `\-`))
	}
	execute(t, nil, "man", "x").Want(t, 1, `unexpected argument "x"`)
}
