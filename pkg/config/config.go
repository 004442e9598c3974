// Package config turns the command line and the environment into one validated
// Config, finds the counters CSV and watches it for changes. Package main reads
// the Config and hands each part the two or three values that it needs; no other
// package imports this one. The flag table (table_contract.go, table_own.go) is
// the only place that knows names, aliases, variables and defaults; the help
// text and docs/flags.md are printed from it.
//
// Nothing here starts a goroutine except Watch, which stops its own.
package config

//go:generate go run ../../cmd/warpgauge docs --output ../../docs/flags.md flags

import (
	"regexp"
	"slices"
	"time"

	"go.uber.org/zap/zapcore"
)

// Config is everything that flags and environment decide.
type Config struct {
	// What is read.
	Collectors    string // path of the counters CSV; meaningful only where CollectorsGiven
	ConfigMapData string // "namespace:name", or NoConfigMap
	ConfigFile    string // YAML configuration of newer dcgm-exporters
	Strict        bool   // an unknown field in the CSV is an error

	// How often.
	Interval       time.Duration
	SlowInterval   time.Duration
	SampleDeadline time.Duration
	RescanInterval time.Duration
	StaleAfter     time.Duration // 0 means the default, see EffectiveStaleAfter

	// From what.
	DCGM, NVML, ROCm Tristate
	NVMLSource       NVMLSource
	ROCmSource       string // ROCmSysfs, ROCmSMI, or ROCmAuto, which means ROCmSysfs
	ROCmLibrary      string // "" means the usual places
	Isolation        string // meaningful through IsolateVendors and IsolateFake
	MemoryLimit      int64  // of a collector's process, bytes; 0 means none
	RestartMax       time.Duration
	ReleaseTimeout   time.Duration // 0 means none
	DropCapabilities bool
	GPUs             Selector
	Switches         Selector
	CPUs             Selector
	HostEngine       HostEngine
	Fake             Fake
	AcceptFakeGPUs   bool // GPUs that DCGM injects for tests
	BindUnbindWatch  bool
	BindUnbindPoll   string // as written; never fatal
	SkipStartupCheck bool

	// The page.
	NoHostname       bool
	HostnameLabel    string
	OldNamespace     bool
	ReplaceBlanks    bool
	XIDWindow        time.Duration
	ClockEventWindow time.Duration
	ExporterMetrics  bool // our own metrics on the same page

	Web        Web
	Kubernetes Kubernetes
	Containers Containers
	HPCJobDir  string
	Dump       Dump
	Log        Log

	sources map[string]Source // by flag name
}

// HostEngine says how DCGM is reached.
type HostEngine struct {
	Library        string // empty: where it usually is
	Address        string // used only where the flag or its variable is set
	Log            bool
	LogLevel       string
	MaxKeepAge     time.Duration
	MaxKeepSamples int
}

// NVMLSource says where NVML is; empty: where it usually is.
type NVMLSource struct {
	Library     string
	DriverRoots []string
}

// Fake asks for simulated GPUs.
type Fake struct {
	Enabled bool
	Profile string
	Devices int // 0 means what the profile has
	Spec    string
	Seed    uint64
}

// Web is the HTTP side.
type Web struct {
	Address              string
	ConfigFile           string
	SystemdSocket        bool
	ReadTimeout          time.Duration
	WriteTimeout         time.Duration
	IdleTimeout          time.Duration
	MaxConnections       int
	MaxConcurrentScrapes int
	Pprof                bool
	Reload               bool
	Release              bool
	HealthRequireGPUs    bool
}

// Kubernetes is how devices are mapped to pods.
type Kubernetes struct {
	Enabled       bool
	PodLabels     bool
	PodUID        bool
	GPUIDType     string           // GPUIDUID or GPUIDDeviceName
	LabelAllow    []*regexp.Regexp // matched anywhere in a label's name; none: all labels
	VirtualGPUs   bool
	DRA           bool
	Socket        string
	Interval      time.Duration // between two questions to the kubelet
	ResourceNames []string
	ProcessValues Tristate
}

// ProcessValuesWanted says whether values of processes are told for the pods
// that share a device, and so whether processes are looked at.
func (k *Kubernetes) ProcessValuesWanted() bool {
	return k.Enabled && (k.ProcessValues == On || k.ProcessValues == Auto && k.VirtualGPUs)
}

// KeepLabel says whether a pod's label of that name is wanted.
func (k *Kubernetes) KeepLabel(name string) bool {
	return len(k.LabelAllow) == 0 || slices.ContainsFunc(k.LabelAllow, func(r *regexp.Regexp) bool { return r.MatchString(name) })
}

// Containers is what the container runtime is asked.
type Containers struct {
	Labels bool   // outside Kubernetes
	Socket string // of the CRI; "" means that it is not asked
}

// Dump is the debugging dumps of dcgm-exporter.
type Dump struct {
	Enabled        bool
	Directory      string
	RetentionHours int
	Compression    bool
}

// Log is how the process tells what it does.
type Log struct {
	Level  zapcore.Level
	Format string
	Debug  bool
}

// Values that have a meaning of their own.
const (
	NoConfigMap      = "none"
	ROCmAuto         = "auto"
	ROCmSMI          = "smi"
	ROCmSysfs        = "sysfs"
	IsolationNone    = "none"
	IsolationProcess = "process"
	GPUIDUID         = "uid"
	GPUIDDeviceName  = "device-name"
	LogText          = "text"
	LogJSON          = "json"
)

// minInterval is the shortest tick that the sampler takes.
const minInterval = 10 * time.Millisecond

// Default returns what holds where neither flag nor variable says otherwise.
func Default() *Config {
	return &Config{
		ConfigMapData:  NoConfigMap,
		Interval:       time.Second,
		SlowInterval:   30 * time.Second,
		SampleDeadline: 5 * time.Second,
		RescanInterval: time.Minute,
		DCGM:           Auto,
		NVML:           Auto,
		ROCm:           Auto,
		ROCmSource:     ROCmSysfs,
		Isolation:      IsolationProcess,
		MemoryLimit:    1 << 30,
		RestartMax:     30 * time.Second,
		ReleaseTimeout: 10 * time.Minute,

		DropCapabilities: true,
		GPUs:             flex(),
		Switches:         flex(),
		CPUs:             flex(),
		HostEngine:       HostEngine{Address: "localhost:5555", LogLevel: "NONE", MaxKeepAge: 10 * time.Minute},
		Fake:             Fake{Profile: "dgx-h100"},
		BindUnbindPoll:   "1s",
		HostnameLabel:    "hostname",
		XIDWindow:        5 * time.Minute,
		ExporterMetrics:  true,
		Web: Web{
			Address:        ":9400",
			ReadTimeout:    10 * time.Second,
			WriteTimeout:   30 * time.Second,
			IdleTimeout:    2 * time.Minute,
			MaxConnections: 512,
		},
		ClockEventWindow: 5 * time.Minute,
		Kubernetes:       Kubernetes{GPUIDType: GPUIDUID, Socket: "/var/lib/kubelet/pod-resources/kubelet.sock", Interval: 5 * time.Second},
		Dump:             Dump{Directory: "/tmp/dcgm-exporter-debug", RetentionHours: 24, Compression: true},
		Log:              Log{Level: zapcore.InfoLevel, Format: LogText},
	}
}

// Source says where the value of the flag with that name came from.
func (c *Config) Source(name string) Source { return c.sources[name] }

// CollectorsGiven says whether a person named the counters CSV.
func (c *Config) CollectorsGiven() bool { return c.Source("collectors") != FromDefault }

// IsolateVendors says whether vendors' libraries run in processes of their own.
func (c *Config) IsolateVendors() bool { return c.Isolation == IsolationProcess }

// IsolateFake says the same of simulated GPUs, which cannot crash: only where a
// person asks for it.
func (c *Config) IsolateFake() bool {
	return c.Isolation == IsolationProcess && c.Source("isolation") != FromDefault
}

// RemoteHostEngine says whether DCGM is asked to use a host engine that runs
// elsewhere: dcgm-exporter does so when the flag or its variable is set, even
// to the default value.
func (c *Config) RemoteHostEngine() bool { return c.Source("remote-hostengine-info") != FromDefault }

// LogLevel is the level in force: --debug wins over --log-level.
func (c *Config) LogLevel() zapcore.Level {
	if c.Log.Debug {
		return zapcore.DebugLevel
	}
	return c.Log.Level
}

// EffectiveStaleAfter is the age at which a device's series leave the page: what
// was asked for, else 30 s or three ticks, whichever is longer, since a page
// must not go empty between two ticks.
func (c *Config) EffectiveStaleAfter() time.Duration {
	if c.StaleAfter != 0 {
		return c.StaleAfter
	}
	return max(30*time.Second, 3*c.Interval)
}
