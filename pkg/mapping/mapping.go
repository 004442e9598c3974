// Package mapping tells how it goes with each background client that says who
// uses a device: the kubelet, the API server, the container runtime, job files,
// processes. A client that fails keeps its last good answer; how old that is, and
// why, is here and in the log.
package mapping

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// The mappings there are: values of the label mapping.
const (
	PodResources     = "pod_resources"     // the kubelet's pod-resources socket
	PodMetadata      = "pod_metadata"      // the API server: uids and labels of pods
	ResourceSlices   = "resource_slices"   // the API server: devices of dynamic resource allocation
	ContainerRuntime = "container_runtime" // the runtime's socket: names of containers
	HPCJobs          = "hpc_jobs"          // the directory of job files
	Processes        = "processes"         // processes on GPUs and the containers they run in
)

// Health is how it goes with one mapping. Its methods may be called concurrently.
type Health struct {
	name string
	log  *zap.Logger
	now  func() time.Time

	mu      sync.Mutex
	tried   bool
	up      bool
	reason  string
	err     error // of the last failure
	success time.Time
	entries int
	errors  map[string]uint64 // by reason
}

// New returns the Health of the mapping called name. The counters of the reasons
// that are named exist from the start. log may be nil.
func New(name string, log *zap.Logger, reasons ...string) *Health {
	if log == nil {
		log = zap.NewNop()
	}
	h := &Health{name: name, log: log.Named("mapping").With(zap.String("mapping", name)), now: time.Now, errors: map[string]uint64{}}
	for _, r := range reasons {
		h.errors[r] = 0
	}
	return h
}

// Succeeded says that an answer with that many entries has just come. It is
// logged where the one before had failed, or where it is the first.
func (h *Health) Succeeded(entries int) {
	h.mu.Lock()
	first, recovered, age := !h.tried, h.tried && !h.up, h.age()
	h.tried, h.up, h.reason, h.err, h.success, h.entries = true, true, "", nil, h.now(), entries
	h.mu.Unlock()
	switch {
	case first:
		h.log.Info("mapping is in use", zap.Int("entries", entries))
	case recovered:
		h.log.Info("mapping is up to date again", zap.Int("entries", entries), zap.Duration("age_before", age))
	}
}

// Failed says that no answer came: reason is a short constant, a label value;
// err says what happened and what to do. It is logged when the reason changes,
// not each time.
func (h *Health) Failed(reason string, err error) {
	h.mu.Lock()
	changed := !h.tried || h.up || h.reason != reason
	h.tried, h.up, h.reason, h.err = true, false, reason, err
	h.errors[reason]++
	had, age, entries := !h.success.IsZero(), h.age(), h.entries
	h.mu.Unlock()
	if !changed {
		return
	}
	if had {
		h.log.Warn("mapping fails, the last one is kept", zap.String("reason", reason), zap.Int("entries", entries), zap.Duration("age", age), zap.Error(err))
		return
	}
	h.log.Warn("mapping fails, there is none yet", zap.String("reason", reason), zap.Error(err))
}

// Counted says that n entries were left out of an answer that came otherwise: it
// counts them, and changes nothing else. Saying so in the log is the caller's part.
func (h *Health) Counted(reason string, n int) {
	h.mu.Lock()
	h.errors[reason] += uint64(n)
	h.mu.Unlock()
}

// Age is the time since the last answer; false where there was none.
func (h *Health) Age() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.age(), !h.success.IsZero()
}

// Failing is the reason of the last failure, empty while all is well.
func (h *Health) Failing() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason
}

// Name says which mapping it is.
func (h *Health) Name() string { return h.name }

// Tried says whether there was an answer or a failure yet.
func (h *Health) Tried() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tried
}

// Problem is what Failed said last, nil while all is well.
func (h *Health) Problem() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// age wants mu held.
func (h *Health) age() time.Duration {
	if h.success.IsZero() {
		return 0
	}
	return max(0, h.now().Sub(h.success))
}

var (
	descUp = prometheus.NewDesc("warpgauge_mapping_up",
		"Whether the last attempt to learn who uses which device succeeded. 0: the last good answer is kept.", []string{"mapping"}, nil)
	descAge = prometheus.NewDesc("warpgauge_mapping_age_seconds",
		"Time since a mapping was last confirmed. Absent before the first answer.", []string{"mapping"}, nil)
	descEntries = prometheus.NewDesc("warpgauge_mapping_entries",
		"Entries of the mapping in use: containers with devices, pods, devices of resource slices, containers, device files, processes.", []string{"mapping"}, nil)
	descErrors = prometheus.NewDesc("warpgauge_mapping_errors_total",
		"Failed attempts to learn who uses which device, by reason.", []string{"mapping", "reason"}, nil)
)

// Describe implements prometheus.Collector.
func (h *Health) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descAge, descEntries, descErrors} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (h *Health) Collect(to chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	up := 0.0
	if h.up {
		up = 1
	}
	to <- prometheus.MustNewConstMetric(descUp, prometheus.GaugeValue, up, h.name)
	if !h.success.IsZero() {
		to <- prometheus.MustNewConstMetric(descAge, prometheus.GaugeValue, h.age().Seconds(), h.name)
	}
	to <- prometheus.MustNewConstMetric(descEntries, prometheus.GaugeValue, float64(h.entries), h.name)
	for reason, n := range h.errors {
		to <- prometheus.MustNewConstMetric(descErrors, prometheus.CounterValue, float64(n), h.name, reason)
	}
}

// Set is the Healths of a process as one collector: a registry takes a
// description only once.
type Set []*Health

// Describe implements prometheus.Collector.
func (s Set) Describe(to chan<- *prometheus.Desc) {
	if len(s) > 0 {
		s[0].Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (s Set) Collect(to chan<- prometheus.Metric) {
	for _, h := range s {
		h.Collect(to)
	}
}
