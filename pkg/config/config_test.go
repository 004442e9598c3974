package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"warpgauge/internal/testkit"
)

// parse runs a root command with one subcommand on the table.
func parse(t *testing.T, env environment, args ...string) (*Set, error) {
	t.Helper()
	s := NewSet(env.Lookup)
	s.AddDialect(otherNames{}, "other: the names of another exporter.")
	ok := func(context.Context, *cli.Command) error { return nil }
	root := &cli.Command{
		Name: "warpgauge", Flags: s.CLI(), Action: ok, Writer: io.Discard, ErrWriter: io.Discard,
		Commands: []*cli.Command{{Name: "check", Action: ok}},
	}
	return s, root.Run(context.Background(), append([]string{"warpgauge"}, args...))
}

// contract repeats dcgm-exporter's table on purpose: the flag table must not change by accident. other
// differs from the default; for switches it is the opposite.
var contract = []struct{ name, alias, env, def, other string }{
	{"collectors", "f", "DCGM_EXPORTER_COLLECTORS", "", "/x.csv"},
	{"address", "a", "DCGM_EXPORTER_LISTEN", ":9400", "[::1]:1"},
	{"collect-interval", "c", "DCGM_EXPORTER_INTERVAL", "1000", "30000"}, // dcgm-exporter's default is 30000
	{"kubernetes", "k", "DCGM_EXPORTER_KUBERNETES", "false", "true"},
	{"use-old-namespace", "o", "DCGM_EXPORTER_USE_OLD_NAMESPACE", "false", "true"},
	{"cpu-devices", "p", "DCGM_EXPORTER_CPU_DEVICES_STR", "f", "g:0"},
	{"configmap-data", "m", "DCGM_EXPORTER_CONFIGMAP_DATA", "none", "ns:name"},
	{"remote-hostengine-info", "r", "DCGM_REMOTE_HOSTENGINE_INFO", "localhost:5555", "dcgm:5555"},
	{"kubernetes-enable-pod-labels", "", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "false", "true"},
	{"kubernetes-enable-pod-uid", "", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "false", "true"},
	{"kubernetes-gpu-id-type", "", "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", "uid", "device-name"},
	{"kubernetes-pod-label-allowlist-regex", "", "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", "", "^app$,team"},
	{"devices", "d", "DCGM_EXPORTER_DEVICES_STR", "f", "g:0,1+i:2"},
	{"no-hostname", "n", "DCGM_EXPORTER_NO_HOSTNAME", "false", "true"},
	{"switch-devices", "s", "DCGM_EXPORTER_OTHER_DEVICES_STR", "f", "i:0-3"},
	{"fake-gpus", "", "DCGM_EXPORTER_USE_FAKE_GPUS", "false", "true"},
	{"web-config-file", "", "DCGM_EXPORTER_WEB_CONFIG_FILE", "", "/web.yml"},
	{"xid-count-window-size", "x", "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", "300000", "1000"},
	{"replace-blanks-in-model-name", "rbmn", "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME", "false", "true"},
	{"debug", "", "DCGM_EXPORTER_DEBUG", "false", "true"},
	{"clock-events-count-window-size", "", "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE", "300000", "1000"},
	{"enable-dcgm-log", "", "DCGM_EXPORTER_ENABLE_DCGM_LOG", "false", "true"},
	{"dcgm-log-level", "", "DCGM_EXPORTER_DCGM_LOG_LEVEL", "NONE", "VERB"},
	{"log-format", "", "DCGM_EXPORTER_LOG_FORMAT", "text", "json"},
	{"pod-resources-kubelet-socket", "", "DCGM_POD_RESOURCES_KUBELET_SOCKET", "/var/lib/kubelet/pod-resources/kubelet.sock", "/k.sock"},
	{"hpc-job-mapping-dir", "", "DCGM_HPC_JOB_MAPPING_DIR", "", "/jobs"},
	{"nvidia-resource-names", "", "NVIDIA_RESOURCE_NAMES", "", "nvidia.com/a100,nvidia.com/gpu.shared"},
	{"kubernetes-virtual-gpus", "", "KUBERNETES_VIRTUAL_GPUS", "false", "true"},
	{"dump-enabled", "", "DCGM_EXPORTER_DUMP_ENABLED", "false", "true"},
	{"dump-directory", "", "DCGM_EXPORTER_DUMP_DIRECTORY", "/tmp/dcgm-exporter-debug", "/d"},
	{"dump-retention", "", "DCGM_EXPORTER_DUMP_RETENTION", "24", "0"},
	{"dump-compression", "", "DCGM_EXPORTER_DUMP_COMPRESSION", "true", "false"},
	{"kubernetes-enable-dra", "", "KUBERNETES_ENABLE_DRA", "false", "true"},
	{"disable-startup-validate", "", "DISABLE_STARTUP_VALIDATE", "false", "true"},
	{"enable-gpu-bind-unbind-watch", "", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", "false", "true"},
	{"gpu-bind-unbind-poll-interval", "", "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL", "1s", "nonsense"},
	{"enable-pprof", "", "DCGM_EXPORTER_ENABLE_PPROF", "false", "true"},
	{"web-systemd-socket", "", "DCGM_EXPORTER_SYSTEMD_SOCKET", "false", "true"},
	{"config-file", "", "DCGM_EXPORTER_CONFIG_FILE", "", "/c.yaml"},
	{"web-read-timeout", "", "DCGM_EXPORTER_WEB_READ_TIMEOUT", "10s", "1s"},
	{"web-write-timeout", "", "DCGM_EXPORTER_WEB_WRITE_TIMEOUT", "30s", "5m"},
	{"container-labels", "", "DCGM_EXPORTER_CONTAINER_LABELS", "false", "true"},
	{"container-runtime-socket", "", "DCGM_CONTAINER_RUNTIME_SOCKET", "", "/run/runtime.sock"},
	{"max-concurrent-scrapes", "", "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES", "0", "4"}, // dcgm-exporter's default is 16
	{"enable-exporter-metrics", "", "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS", "false", "true"},
	{"watch-max-keep-age", "", "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", "10m", "1h"},
	{"watch-max-keep-samples", "", "DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES", "0", "10"},
	{"health-require-gpus", "", "DCGM_EXPORTER_HEALTH_REQUIRE_GPUS", "false", "true"},
}

// Check every flag of the contract: default, variable, flag, alias. The flag beats the variable, before and
// after a subcommand.
func TestContractFlags(t *testing.T) {
	for _, c := range contract {
		t.Run(c.name, func(t *testing.T) {
			got := func(env environment, args ...string) string {
				t.Helper()
				s := testkit.Get(parse(t, env, args...))(t)
				return s.find(c.name).Value.String()
			}
			want := func(what, got, want string) {
				t.Helper()
				testkit.Equal(t, what+": "+c.name, want, got)
			}
			testkit.FatalIf(t, !slices.ContainsFunc(NewSet(environment{}.Lookup).flags, func(f *Flag) bool { return f.Name == c.name }), "no such flag")
			set := environment{c.env: c.other}
			want("default", got(nil), c.def)
			want("empty variable", got(environment{c.env: ""}), c.def)
			want("variable", got(set), c.other)
			want("flag", got(nil, "--"+c.name+"="+c.other), c.other)
			want("flag after a subcommand", got(nil, "check", "--"+c.name+"="+c.other), c.other)
			if c.alias != "" {
				want("alias", got(nil, "-"+c.alias+"="+c.other), c.other)
			}
			isSwitch := c.def == "true" || c.def == "false"
			if isSwitch {
				want("bare flag", got(nil, "--"+c.name), "true")
			} else {
				want("flag and argument", got(nil, "--"+c.name, c.other), c.other)
			}
			if c.def != "" {
				want("flag beats variable", got(set, "--"+c.name+"="+c.def), c.def)
				want("flag after a subcommand beats variable", got(set, "check", "--"+c.name+"="+c.def), c.def)
			}
		})
	}
}

func TestTableIsConsistent(t *testing.T) {
	seen := map[string]bool{}
	s := NewSet(environment{}.Lookup)
	theirs := 0
	for _, f := range s.flags {
		if f.Origin == Contract {
			theirs++
		}
		for _, key := range append(f.Names(), f.Env) {
			testkit.ErrorIf(t, key == "" || seen[key], "--%s: name or variable %q is empty or taken", f.Name, key)
			seen[key] = true
		}
		testkit.ErrorIf(t, f.Origin == Own && !strings.HasPrefix(f.Env, "WARPGAUGE_"), "--%s: variable %s lacks the prefix WARPGAUGE_", f.Name, f.Env)
		testkit.ErrorIf(t, !slices.Contains(s.Groups(), f.Group) || !strings.HasSuffix(f.Usage, "."), "--%s: group %q unknown or usage without full stop", f.Name, f.Group)
		testkit.Equal(t, fmt.Sprintf("--%s: a switch has no Metavar, everything else has one", f.Name), (f.Metavar == "" || strings.HasPrefix(f.Metavar, "auto|")), f.IsBoolFlag())
		text := f.Text()
		testkit.ErrorIf(t, !strings.HasPrefix(text, f.Usage) || !strings.HasSuffix(text, "$"+f.Env), "--%s: help %q", f.Name, text)
		testkit.ErrorIf(t, f.Get() != f.Default() || f.String() != f.Spelling()+"\t"+f.Usage, "--%s is %v, as text %q", f.Name, f.Get(), f)
		if f.initial == "" {
			continue
		}
		f.reset()
		err := f.Value.Set(f.initial)
		testkit.ErrorIf(t, err != nil || f.Value.String() != f.initial, "--%s: the default %q does not parse back: %v", f.Name, f.initial, err)
	}
	testkit.Equal(t, "flags of dcgm-exporter", len(contract), theirs)
}

func TestLists(t *testing.T) {
	const name, env = "--nvidia-resource-names", "NVIDIA_RESOURCE_NAMES"
	for _, c := range []struct {
		env  environment
		args []string
		want []string
	}{
		{args: []string{name, "a,b"}, want: []string{"a", "b"}},
		{args: []string{name, "a", name + "=b, c"}, want: []string{"a", "b", "c"}},
		{env: environment{env: "x , y,"}, want: []string{"x", "y"}},
		{env: environment{env: "x"}, args: []string{name, "a", name, "b"}, want: []string{"a", "b"}},
		{env: environment{env: "x"}, args: []string{"check", name, "a", name, "b"}, want: []string{"a", "b"}},
	} {
		s := testkit.Get(parse(t, c.env, c.args...))(t)
		testkit.Equal(t, fmt.Sprintf("%v with %v", c.args, c.env), c.want, s.config.Kubernetes.ResourceNames)
	}
}

// Errors name the flag or the variable, the value, and what to write. All bad settings are reported at once.
func TestBadSettings(t *testing.T) {
	const patterns = "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"
	for _, c := range []struct {
		env  environment
		args string
		want []string // in the error; none: valid
	}{
		{args: "-c 1s", want: []string{"-c, --collect-interval", `"1s"`, "milliseconds"}},
		{args: "-c -5", want: []string{"--collect-interval", "milliseconds"}},
		{args: "-c 9300000000000000", want: []string{"--collect-interval", "at most 9223372036854"}},
		{env: environment{"DCGM_EXPORTER_INTERVAL": "x"}, want: []string{"DCGM_EXPORTER_INTERVAL", `"x"`, "milliseconds"}},
		{env: environment{"DCGM_EXPORTER_KUBERNETES": "yes"}, want: []string{"DCGM_EXPORTER_KUBERNETES", "true or false"}},
		{args: "--kubernetes=maybe", want: []string{"--kubernetes", "true or false"}},
		{args: "--enable-dcgm=maybe", want: []string{"--enable-dcgm", "auto, true or false"}},
		{args: "--dcgm-log-level=LOUD", want: []string{"--dcgm-log-level", "NONE, FATAL"}},
		{args: "--kubernetes-gpu-id-type=x", want: []string{"uid, device-name"}},
		{args: "--kubernetes-pod-label-allowlist-regex=app,te[am", want: []string{"--kubernetes-pod-label-allowlist-regex", `expression 2, "te[am"`, "missing closing ]", "correct it"}},
		{env: environment{patterns: "*"}, want: []string{"environment variable " + patterns, "missing argument to repetition operator"}},
		{args: "--log-format=xml", want: []string{"--log-format", "text, json"}},
		{args: "--log-level=fatal", want: []string{"debug, info, warn or error"}},
		{args: "-d x", want: []string{"-d, --devices", `"x" is none`}},
		{args: "--fake-seed=-1", want: []string{"not negative"}},
		{args: "--stale-after=30", want: []string{"--stale-after", "unit"}},
		{args: "--web-read-timeout=-1s", want: []string{"--web-read-timeout"}},
		{args: "--dump-retention=1.5", want: []string{"whole number"}},
		{args: "-m name", want: []string{"--configmap-data", "NAMESPACE:NAME"}},
		{args: "-m a:b:c", want: []string{"NAMESPACE:NAME"}},
		{args: "--no-such-flag", want: []string{"no-such-flag"}},
		{},
		{args: "-c 10"},
		{args: "-c 9", want: []string{"--collect-interval is 9ms: it must be at least 10ms"}},
		{args: "-c 60000"}, // slow fields then come each tick
		{args: "--slow-interval=1ms", want: []string{"--slow-interval is 1ms: it must be at least 10ms"}},
		{args: "--stale-after=1s", want: []string{"--stale-after is 1s: it must be at least 2s"}},
		{args: "--stale-after=2s"},
		{args: "-x 0", want: []string{"--xid-count-window-size"}},
		{args: "-a 9400", want: []string{`--address is "9400"`}},
		{args: "-a :http", want: []string{`port "http"`}},
		{args: "-a :70000", want: []string{`port "70000"`}},
		{args: "-a [::1]:0"},
		{args: "--fake-profile=mi300x", want: []string{"--fake-profile is set without --enable-fake"}},
		{args: "--enable-fake --fake-profile=mi300x --fake-devices=3"},
		{args: "--enable-fake --fake-devices=-1", want: []string{"--fake-devices"}},
		{args: "-k --pod-resources-kubelet-socket=kubelet.sock", want: []string{`--pod-resources-kubelet-socket is "kubelet.sock": write the absolute path`}},
		{args: "-k --pod-resources-kubelet-socket=", want: []string{"--pod-resources-kubelet-socket"}},
		{args: "--pod-resources-kubelet-socket="}, // not used
		{args: "-k --pod-resources-interval=500ms", want: []string{"--pod-resources-interval is 500ms: it must be at least 1s"}},
		{args: "-k --nvidia-resource-names=nvidia.com/a100,gpu.shared", want: []string{`--nvidia-resource-names has "gpu.shared"`}},
		{args: "-c 1 -a x", want: []string{"--collect-interval", "--address"}},
	} {
		s, err := parse(t, c.env, strings.Fields(c.args)...)
		if err == nil {
			_, err = s.Config()
		}
		what := fmt.Sprintf("%s with %v: there is an error", c.args, c.env)
		testkit.Equal(t, what, len(c.want) > 0, err != nil)
		testkit.Has(t, what, fmt.Sprint(err), c.want...)
	}
}

func TestUnknownVariables(t *testing.T) {
	s := NewSet(environment{}.Lookup)
	var got []string
	for _, n := range s.UnknownVariables([]string{
		"PATH=/bin", "DCGM_EXPORTER_LISTEN=:1", "WARPGAUGE_ENABLE_FAKE=true",
		"DCGM_EXPORTER_LISTN=:1", "WARPGAUGE_ENABEL_NVML=true", "WARPGAUGE_XYZZY=", "DCGM_OTHER=1",
		"WARPGAUGE_FLAGS=-c 500", // of the unit
		// Variables that Kubernetes creates for Services.
		"DCGM_EXPORTER_SERVICE_HOST=10.0.0.1", "DCGM_EXPORTER_SERVICE_PORT=9400", "DCGM_EXPORTER_SERVICE_PORT_METRICS=9400",
		"DCGM_EXPORTER_PORT=tcp://10.0.0.1:9400", "WARPGAUGE_PORT_9400_TCP_ADDR=10.0.0.1", "WARPGAUGE_PORT_9400_TCP=tcp://10.0.0.1:9400",
	}) {
		got = append(got, n.Text)
	}
	want := []string{
		"environment variable DCGM_EXPORTER_LISTN is unknown and has no effect; did you mean DCGM_EXPORTER_LISTEN?",
		"environment variable WARPGAUGE_ENABEL_NVML is unknown and has no effect; did you mean WARPGAUGE_ENABLE_NVML?",
		"environment variable WARPGAUGE_XYZZY is unknown and has no effect",
	}
	testkit.Equal(t, "notices", want, got)
}

func TestNotices(t *testing.T) {
	for _, c := range []struct {
		env  environment
		args []string
		want []string
	}{
		{
			env:  environment{"DCGM_EXPORTER_CONTAINER_LABELS": "false"},
			args: []string{"--watch-max-keep-samples=3", "--debug", "-c", "500"},
			want: []string{"watch-max-keep-samples from command line: only the newest"},
		},
		{args: []string{"-k", "--kubernetes-enable-pod-labels", "--kubernetes-pod-label-allowlist-regex=app", "--process-values"}},
		{args: []string{"--kubernetes-enable-pod-labels"}, want: []string{"kubernetes-enable-pod-labels from command line without --kubernetes"}},
		{
			args: []string{"-k", "--kubernetes-pod-label-allowlist-regex=app"},
			want: []string{"kubernetes-pod-label-allowlist-regex from command line without --kubernetes-enable-pod-labels"},
		},
		{
			args: []string{"--kubernetes-enable-pod-labels", "--kubernetes-pod-label-allowlist-regex=app"},
			want: []string{
				"kubernetes-enable-pod-labels from command line without --kubernetes",
				"kubernetes-pod-label-allowlist-regex from command line without --kubernetes",
			},
		},
		{
			env:  environment{"KUBERNETES_VIRTUAL_GPUS": "true", "DCGM_POD_RESOURCES_KUBELET_SOCKET": "/var/lib/kubelet/pod-resources/kubelet.sock"},
			want: []string{"kubernetes-virtual-gpus from environment without --kubernetes"},
		},
		{args: []string{"--container-runtime-socket=/run/docker.sock"}, want: []string{"container-runtime-socket from command line: containers are known"}},
		{args: []string{"--process-values=false"}, want: []string{"process-values from command line without --kubernetes"}},
	} {
		s := testkit.Get(parse(t, c.env, c.args...))(t)
		var got []string
		for _, n := range s.Notices() {
			head := "--" + n.Flag + " has no effect"
			why, ok := strings.CutPrefix(n.Text, head)
			testkit.ErrorIf(t, !ok, "notice %q does not say which flag and why", n.Text)
			got = append(got, n.Flag+" from "+n.Source.String()+why)
		}
		ok := len(got) == len(c.want)
		for i := range got {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		testkit.ErrorIf(t, !ok, "%v with %v: notices are %q, want %q", c.args, c.env, got, c.want)
	}
}

func TestWriteNotice(t *testing.T) {
	var b strings.Builder
	WriteNotice(&b, "p", "%s", "a\x1b\r\nb")
	testkit.Equal(t, "line", "p: a?? b\n", b.String())
}

// TestOwnMetrics combines dcgm-exporter's switch and our flag, from the same source and from two.
func TestOwnMetrics(t *testing.T) {
	type vars = environment
	for _, c := range []struct {
		env  vars
		args []string
		want string
		not  string // the ignored flag, with a notice
	}{
		{nil, nil, MetricsLean, ""},
		{nil, []string{"--exporter-metrics=full"}, MetricsFull, ""},
		{nil, []string{"--enable-exporter-metrics"}, MetricsFull, ""},
		{nil, []string{"--enable-exporter-metrics=false"}, MetricsNone, ""},
		{nil, []string{"--enable-exporter-metrics=false", "--exporter-metrics=lean"}, MetricsLean, "enable-exporter-metrics"},
		{vars{"WARPGAUGE_EXPORTER_METRICS": "full"}, []string{"--enable-exporter-metrics=false"}, MetricsNone, ""},
		{vars{"DCGM_EXPORTER_ENABLE_EXPORTER_METRICS": "false"}, []string{"--exporter-metrics=full"}, MetricsFull, ""},
		{nil, []string{"--enable-exporter-metrics", "--exporter-metrics=full"}, MetricsFull, ""},
		{vars{"DCGM_EXPORTER_ENABLE_EXPORTER_METRICS": "true"}, nil, MetricsFull, ""},
	} {
		s, err := parse(t, c.env, c.args...)
		if err == nil {
			_, err = s.Config()
		}
		got := s.config.OwnMetrics()
		testkit.ErrorIf(t, err != nil || got != c.want, "%v %v: %q, %v; want %q", c.env, c.args, got, err, c.want)
		not := ""
		for _, n := range s.Notices() {
			not += n.Flag
		}
		testkit.Equal(t, fmt.Sprintf("%v %v: a notice like %q in %q", c.env, c.args, c.not, s.Notices()), c.not, not)
	}
}

func TestHostname(t *testing.T) {
	system := func() (string, error) { return "machine", nil }
	for _, c := range []struct {
		env  environment
		args []string
		want string
	}{
		{want: "machine"},
		{env: environment{"NODE_NAME": "node"}, want: "node"},
		{env: environment{"NODE_NAME": ""}, want: "machine"},
		{env: environment{"NODE_NAME": "node"}, args: []string{"-n"}, want: ""},
		{env: environment{"NODE_NAME": "node"}, args: []string{"-r", "engine:5555"}, want: "node"},
		{args: []string{"-r", "engine:5555"}, want: "engine"},
		{args: []string{"-r", "engine"}, want: "engine"},
		{args: []string{"-r", "tcp://engine:5555"}, want: "engine"},
		{args: []string{"-r", "[2001:db8::1]:5555"}, want: "2001:db8::1"},
		{args: []string{"-r", "[2001:db8::1]"}, want: "2001:db8::1"},
		{args: []string{"-r", "engine:5555", "-k"}, want: "machine"},
		{args: []string{"-r", "localhost:5555"}, want: "machine"},
		{args: []string{"-r", "127.0.0.1:5555"}, want: "machine"},
		{args: []string{"-r", "[::1]:5555"}, want: "machine"},
		{args: []string{"-r", "unix:///run/dcgm.sock"}, want: "machine"},
		{args: []string{"-r", "vsock://3:5555"}, want: "machine"},
		{env: environment{"DCGM_REMOTE_HOSTENGINE_INFO": "nvidia-dcgm:5555"}, want: "nvidia-dcgm"},
	} {
		s := testkit.Get(parse(t, c.env, c.args...))(t)
		got, err := s.config.Hostname(c.env.Lookup, system)
		testkit.ErrorIf(t, got != c.want || err != nil, "hostname of %v with %v = %q, %v, want %q", c.args, c.env, got, err, c.want)
	}
	nameless := func() (string, error) { return "", errors.New("no name") }
	_, err := Default().Hostname(environment{}.Lookup, nameless)
	testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "--no-hostname"), "a machine without a name gives %v, want an error that says what to do", err)
}

func TestCounters(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.csv"), filepath.Join(dir, "second.csv")
	builtIn := []byte("built in")
	read := func(s *Set, err error) (string, string, error) {
		must(t, err)
		s.config.DefaultFiles = []string{first, second}
		in, err := s.config.Counters("", nil).Read(t.Context(), builtIn)
		if err != nil {
			return "", "", err
		}
		return in.Name, string(in.CSV), nil
	}
	want := func(name, content string) func(string, string, error) {
		return func(gotName, got string, err error) {
			t.Helper()
			testkit.ErrorIf(t, gotName != name || got != content || err != nil, "counters are %q with %q, %v, want %q with %q", gotName, got, err, name, content)
		}
	}
	want("built-in default-counters.csv", "built in")(read(parse(t, nil)))
	write(t, second, "2")
	want(second, "2")(read(parse(t, nil)))
	write(t, first, "1")
	want(first, "1")(read(parse(t, nil)))
	want(second, "2")(read(parse(t, nil, "-f", second)))
	want(second, "2")(read(parse(t, environment{"DCGM_EXPORTER_COLLECTORS": second})))

	absent := filepath.Join(dir, "absent.csv")
	_, _, err := read(parse(t, nil, "-f", absent))
	testkit.Has(t, "the error for an absent file, with its name and what to do", fmt.Sprint(err), absent, "--collectors")
	if _, _, err := read(parse(t, nil, "-f", dir)); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("a directory gives %v, want an error that says so", err)
	}
}

// The arguments of a child repeat the settings from the command line and the environment.
func TestArgumentsOfAChild(t *testing.T) {
	env := environment{"WARPGAUGE_RESCAN_INTERVAL": "7s", "WARPGAUGE_NVML_DRIVER_ROOT": "/a,/b"}
	for _, f := range contract {
		if f.name != "address" && f.name != flagConfigFile { // which a child must not read
			env[f.env] = f.other
		}
	}
	s, err := parse(t, env, "--address=[::1]:1", "--collect-interval=70")
	must(t, err)
	again := testkit.Get(parse(t, environment{}, s.Arguments()...))(t)
	for i, f := range s.Flags() {
		testkit.Equal(t, f.Name, f.Value.String(), again.Flags()[i].Value.String())
	}
	if c, err := parse(t, environment{}); err != nil || len(c.Arguments()) != 0 {
		t.Errorf("arguments of defaults: %q, %v", c.Arguments(), err)
	}
}
