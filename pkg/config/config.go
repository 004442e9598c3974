// Package config turns the command line and the environment into one validated Config, finds the counters CSV
// and watches it for changes. The program passes each part the few values that it needs. The flag table
// (flags_contract.go, flags_own.go) is the only list of names, aliases, variables and defaults; it also
// generates the help text and docs/flags.md. Commands of warpgauge and warpctl share messages, help, manual pages,
// output and exit codes, which link neither a collector nor an extension.
//
// Nothing here starts a goroutine; Watch runs in its caller's.
package config

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

// Config holds every setting from flags and environment.
type Config struct {
	// Input files.
	Collectors   string   // path of the counters CSV, if CollectorsGiven
	ConfigMap    string   // NAMESPACE:NAME of a ConfigMap with the CSV; "": none
	ConfigFile   string   // path of the YAML configuration; "": none
	YAML         *YAML    // its content at start; nil: none
	DefaultFiles []string // default files, tried if the user names no CSV; set by main, so that tests do not read the machine's
	Strict       bool     // an unknown field in the CSV is an error
	FieldNames   string   // from the flag; see Names

	// How often.
	Interval       time.Duration
	SlowInterval   time.Duration
	SampleDeadline time.Duration
	RescanInterval time.Duration
	AbsentFields   bool
	StaleAfter     time.Duration // 0 means the default, see EffectiveStaleAfter

	// From what.
	DCGM, NVML, ROCm Tristate
	Only             string // comma-separated names of the only collectors to use; "": see Uses
	Require          string // RequireNone, or the vendor whose GPU must be up for readiness
	NVMLSource       NVMLSource
	ROCmSource       string // ROCmSysfs, ROCmSMI, ROCmAMDSMI, or ROCmAuto, which means ROCmSysfs
	ROCmLibrary      string // "" means the usual places
	Isolation        string // of vendors' libraries; of simulated GPUs see IsolateFake
	MemoryLimit      int64  // limit of a collector's process, bytes; 0: none
	RestartMax       time.Duration
	ReleaseTimeout   time.Duration // 0 means none
	GPUs             Selector
	Switches         Selector
	CPUs             Selector
	HostEngine       HostEngine
	Fake             Fake
	AcceptFakeGPUs   bool // GPUs that DCGM injects for tests

	// The page.
	NoHostname       bool
	HostnameLabel    string
	OldNamespace     bool
	ReplaceBlanks    bool
	XIDWindow        time.Duration
	ClockEventWindow time.Duration
	ExporterMetrics  string // which of our own metrics are on the page: MetricsNone, MetricsLean, MetricsFull
	allMetrics       bool   // the same in dcgm-exporter's form: all or none

	Web        Web
	Kubernetes Kubernetes
	HPCJobDir  string
	HPCLabels  []string // further labels of jobs: user, partition
	Log        Log

	dialects []Dialect
	sources  map[string]Source // by flag name
}

// HostEngine is the way to reach DCGM.
type HostEngine struct {
	Library  string // empty: the usual places
	Address  string // used only if RemoteHostEngine
	Log      bool
	LogLevel string
}

// NVMLSource is the place of NVML; empty: the usual places.
type NVMLSource struct {
	Library     string
	DriverRoots []string
}

// Fake holds the options of simulated GPUs.
type Fake struct {
	Enabled bool
	Profile string
	Devices int // 0: the profile's own number
	Spec    string
	Seed    uint64
}

// Web holds the HTTP settings.
type Web struct {
	Address              string
	ConfigFile           string
	SystemdSocket        bool
	ReadTimeout          time.Duration
	WriteTimeout         time.Duration
	MaxConcurrentScrapes int
	HealthRequireGPUs    bool
	Pprof                bool
	Reload               bool
	Release              bool
}

// Kubernetes holds the settings that map devices to pods.
type Kubernetes struct {
	Enabled       bool
	PodLabels     bool
	PodUID        bool
	LabelAllow    []*regexp.Regexp // matched anywhere in a label's name; empty: all labels
	VirtualGPUs   bool
	DRA           bool
	Socket        string
	Interval      time.Duration // time between two requests to the kubelet
	ResourceNames []string
	ProcessValues Tristate
	Facts         PodFacts
}

// PodFacts names the facts of pods that a dialect shows, from the API server.
type PodFacts struct {
	UID    bool
	Labels []field.NameValue // the dialect's name of a label, and the pod's label
}

// ProcessValuesWanted reports whether pods that share a device get their own values from its processes, so
// that processes must be read.
func (k *Kubernetes) ProcessValuesWanted() bool {
	return k.Enabled && (k.ProcessValues == On || k.ProcessValues == Auto && k.VirtualGPUs)
}

// KeepLabel reports whether the owner labels include this pod label.
func (k *Kubernetes) KeepLabel(name string) bool {
	return len(k.LabelAllow) == 0 || slices.ContainsFunc(k.LabelAllow, func(r *regexp.Regexp) bool { return r.MatchString(name) })
}

// Log configures the process's log.
type Log struct {
	Level  zapcore.Level
	Format string
	Debug  bool
}

// Special values.
const (
	ROCmAuto         = "auto"
	ROCmSMI          = "smi"
	ROCmAMDSMI       = "amdsmi"
	ROCmSysfs        = "sysfs"
	IsolationNone    = "none"
	IsolationProcess = "process"
	LogText          = "text"
	LogJSON          = "json"
)

// minInterval is the shortest tick that the sampler takes.
const minInterval = 10 * time.Millisecond

// Default returns the Config without flags and variables.
func Default() *Config {
	return &Config{
		FieldNames:      string(field.NamesAsWritten),
		Interval:        time.Second,
		SlowInterval:    30 * time.Second,
		SampleDeadline:  5 * time.Second,
		RescanInterval:  time.Minute,
		DCGM:            Auto,
		NVML:            Auto,
		ROCm:            Auto,
		ROCmSource:      ROCmSysfs,
		Isolation:       IsolationProcess,
		Require:         RequireNone,
		MemoryLimit:     1 << 30,
		RestartMax:      30 * time.Second,
		ReleaseTimeout:  10 * time.Minute,
		GPUs:            flex(),
		Switches:        flex(),
		CPUs:            flex(),
		HostEngine:      HostEngine{Address: "localhost:5555", LogLevel: "NONE"},
		Fake:            Fake{Profile: "dgx-h100"},
		HostnameLabel:   "hostname",
		XIDWindow:       5 * time.Minute,
		ExporterMetrics: MetricsLean,
		Web: Web{
			Address:      ":9400",
			ReadTimeout:  10 * time.Second,
			WriteTimeout: 30 * time.Second,
		},
		ClockEventWindow: 5 * time.Minute,
		Kubernetes:       Kubernetes{Socket: "/var/lib/kubelet/pod-resources/kubelet.sock", Interval: 5 * time.Second},
		Log:              Log{Level: zapcore.InfoLevel, Format: LogText},
	}
}

// Values of Config.Require in addition to vendor names.
const (
	RequireNone = "none"
	RequireAny  = "any"
)

// Uses reports whether --enable-only leaves a collector in use.
func (c *Config) Uses(collector string) bool {
	return c.Only == "" || slices.Contains(SplitList(c.Only), collector)
}

// Simulates reports whether simulated GPUs are enabled.
func (c *Config) Simulates() bool {
	return c.Only == "" && c.Fake.Enabled || c.Only != "" && c.Uses(fakeCollector)
}

// fakeCollector is the name of simulated GPUs in --enable-only.
const fakeCollector = "fake"

// requirable returns the names of the vendors that --require accepts.
func requirable() (out []string) {
	for _, v := range field.Vendors() {
		out = append(out, strings.ToLower(v.Name))
	}
	return out
}

// Values of Config.ExporterMetrics.
const (
	MetricsNone = "none"
	MetricsLean = "lean" // selfmetrics.Lean
	MetricsFull = "full"
)

// OwnMetrics returns which of our own metrics are on the page. dcgm-exporter's flag, which has two values,
// counts if it comes from a stronger source than our flag.
func (c *Config) OwnMetrics() string {
	switch {
	case c.Source("enable-exporter-metrics") <= c.Source("exporter-metrics"):
		return c.ExporterMetrics
	case c.allMetrics:
		return MetricsFull
	}
	return MetricsNone
}

// ownMetricsNotice reports that dcgm-exporter's flag is ignored, if our flag comes from the same source and
// differs. It does not report that a flag beats a variable, because users expect that.
func (c *Config) ownMetricsNotice() []Notice {
	const theirs, ours = "enable-exporter-metrics", "exporter-metrics"
	set := MetricsNone
	if c.allMetrics {
		set = MetricsFull
	}
	src := c.Source(theirs)
	if src == FromDefault || src != c.Source(ours) || set == c.ExporterMetrics {
		return nil
	}
	return []Notice{{theirs, src, "--" + theirs + " is not used: --" + ours + " is " + c.ExporterMetrics}}
}

// Source returns the source of a flag's value.
func (c *Config) Source(name string) Source { return c.sources[name] }

// CollectorsGiven reports whether the user named the counters CSV.
func (c *Config) CollectorsGiven() bool { return c.Source("collectors") != FromDefault }

// Names returns the names under which fields are shown: from the flag or its variable, else from the current
// configuration file.
func (c *Config) Names(in *Content) field.Names {
	if y := in.YAML; y != nil && y.names != "" && c.Source("field-names") <= FromExtension {
		return y.names
	}
	return field.Names(c.FieldNames)
}

// IsolateFake reports whether simulated GPUs run in their own process. They cannot crash, so only
// --isolation=process does that.
func (c *Config) IsolateFake() bool {
	return c.Isolation == IsolationProcess && c.Source("isolation") != FromDefault
}

// RemoteHostEngine reports whether DCGM uses a host engine in another process: as in dcgm-exporter, if the
// flag or its variable is set, even to the default value.
func (c *Config) RemoteHostEngine() bool { return c.Source("remote-hostengine-info") != FromDefault }

// LogLevel returns the effective level: --debug wins over --log-level.
func (c *Config) LogLevel() zapcore.Level {
	if c.Log.Debug {
		return zapcore.DebugLevel
	}
	return c.Log.Level
}

// EffectiveStaleAfter returns the age at which a device's series leave the page: the configured age, else 30
// s or three ticks, whichever is longer, because a page must not be empty between two ticks.
func (c *Config) EffectiveStaleAfter() time.Duration {
	return cmp.Or(c.StaleAfter, max(30*time.Second, 3*c.Interval))
}

// NodeName returns the node's name in Kubernetes, or "" if no variable has it.
func NodeName(lookup func(string) (string, bool)) string {
	for _, variable := range []string{"NODE_NAME", "DS_NODE_NAME"} { // dcgm-exporter's and a GPU operator's
		if name, _ := lookup(variable); name != "" {
			return name
		}
	}
	return ""
}

// Hostname returns the value of the hostname label, by dcgm-exporter's rule: the node's name; else, outside Kubernetes
// with a remote host engine, the host of that engine; else the operating system's. It is empty if the user disabled the
// label. The name of a loopback engine is not used: "localhost" on every node would merge their series.
func (c *Config) Hostname(lookup func(string) (string, bool), system func() (string, error)) (string, error) {
	if c.NoHostname {
		return "", nil
	}
	if node := NodeName(lookup); node != "" {
		return node, nil
	}
	if !c.Kubernetes.Enabled && c.RemoteHostEngine() {
		if host := engineHost(c.HostEngine.Address); host != "" {
			return host, nil
		}
	}
	name, err := system()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w; set NODE_NAME, or leave the label out with --no-hostname", err)
	}
	return name, nil
}

// engineHost returns the host of HOST, HOST:PORT, [IPV6]:PORT or tcp://HOST:PORT,
// and "" for this machine: loopback addresses, unix and vsock sockets.
func engineHost(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		rest = address
	} else if scheme != "tcp" {
		return ""
	}
	host, _, err := net.SplitHostPort(rest)
	if err != nil {
		host = strings.Trim(rest, "[]")
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return ""
	}
	return host
}

// Counters returns the field list at path. If path is empty, it uses the configured list, else the first existing
// default file, else the built-in list. configMap reads the counters CSV of a ConfigMap, if one is configured.
func (c *Config) Counters(path string, configMap func(ctx context.Context, namespace, name string) ([]byte, error)) *Counters {
	out := &Counters{files: file.NewReader(field.MaxFileBytes), configMap: configMap, path: path, yaml: c.ConfigFile, names: c.DialectNames(), dialects: c.dialects, seen: map[string][]byte{}}
	switch {
	case path != "":
		out.yaml, out.dialects = "", nil
	case c.ConfigMap != "":
		out.mapName, out.named = c.ConfigMap, true
	case c.CollectorsGiven():
		out.path, out.named = c.Collectors, true
	default:
		out.defaults = c.DefaultFiles
	}
	return out
}
