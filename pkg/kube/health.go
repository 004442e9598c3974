package kube

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Mappings of this package, for the label mapping.
const (
	MappingPodResources   = "pod_resources"   // the kubelet's pod-resources socket
	MappingPodMetadata    = "pod_metadata"    // the API server: UIDs and labels of pods
	MappingResourceSlices = "resource_slices" // the API server: devices of dynamic resource allocation
)

// Health is the state of one mapping: a background client that reports who uses a device. It is safe for concurrent use.
type Health struct {
	name string
	log  *zap.Logger

	mu      sync.Mutex
	tried   bool
	up      bool
	reason  string
	err     error // the last failure
	success time.Time
	entries int
	errors  map[string]uint64 // by reason
}

// NewHealth returns the Health of a mapping. The counters of the given reasons exist from the start. log may be nil.
func NewHealth(name string, log *zap.Logger, reasons ...string) *Health {
	h := &Health{name: name, log: cmp.Or(log, zap.NewNop()).Named("mapping").With(zap.String("mapping", name)), errors: map[string]uint64{}}
	for _, r := range reasons {
		h.errors[r] = 0
	}
	return h
}

// Succeeded records an answer with the given number of entries. It logs the first answer and the first after a failure.
func (h *Health) Succeeded(entries int) {
	h.mu.Lock()
	first, recovered, age := !h.tried, h.tried && !h.up, h.age()
	h.tried, h.up, h.reason, h.err, h.success, h.entries = true, true, "", nil, time.Now(), entries
	h.mu.Unlock()
	switch {
	case first:
		h.log.Info("mapping works", zap.Int("entries", entries))
	case recovered:
		h.log.Info("mapping works again", zap.Int("entries", entries), zap.Duration("age_before", age))
	}
}

// Failed records a failure. reason is a short constant for a label; err names the failure and the remedy. It logs when
// the reason changes.
func (h *Health) Failed(reason string, err error) {
	h.mu.Lock()
	changed := !h.tried || h.up || h.reason != reason
	h.tried, h.up, h.reason, h.err = true, false, reason, err
	h.errors[reason]++
	had, age, entries := !h.success.IsZero(), h.age(), h.entries
	h.mu.Unlock()
	switch {
	case !changed:
	case had:
		h.log.Warn("mapping failed; keeping the last answer", zap.String("reason", reason), zap.Int("entries", entries), zap.Duration("age", age), zap.Error(err))
	default:
		h.log.Warn("mapping failed; no answer yet", zap.String("reason", reason), zap.Error(err))
	}
}

// Counted counts n dropped entries of a good answer. The caller logs them.
func (h *Health) Counted(reason string, n int) {
	h.mu.Lock()
	h.errors[reason] += uint64(n)
	h.mu.Unlock()
}

// State is a copy of a Health at one time.
type State struct {
	Name    string
	Tried   bool          // there has been an answer or a failure
	Failing string        // reason of the last failure; empty after an answer
	Problem error         // the last failure; nil after an answer
	Age     time.Duration // of the last answer
}

// State returns the state now.
func (h *Health) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return State{Name: h.name, Tried: h.tried, Failing: h.reason, Problem: h.err, Age: h.age()}
}

// age must be called with mu held.
func (h *Health) age() time.Duration {
	if h.success.IsZero() {
		return 0
	}
	return max(0, time.Since(h.success))
}

var (
	descUp = prometheus.NewDesc("warpgauge_mapping_up",
		"Whether the last attempt to learn who uses which device succeeded. 0: the last good answer is kept.", []string{"mapping"}, nil)
	descAge = prometheus.NewDesc("warpgauge_mapping_age_seconds",
		"Time since a mapping was last confirmed. Absent before the first answer.", []string{"mapping"}, nil)
	descEntries = prometheus.NewDesc("warpgauge_mapping_entries",
		"Entries of the mapping in use: containers with devices, pods, devices of resource slices, device files, processes.", []string{"mapping"}, nil)
	descErrors = prometheus.NewDesc("warpgauge_mapping_errors_total",
		"Failed attempts to learn who uses which device, by reason.", []string{"mapping", "reason"}, nil)
)

// Healths combines all mappings of a process into one prometheus.Collector, because a registry accepts a description
// only once.
type Healths []*Health

// Describe implements prometheus.Collector.
func (Healths) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descAge, descEntries, descErrors} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (all Healths) Collect(to chan<- prometheus.Metric) {
	for _, h := range all {
		h.mu.Lock()
		up, age, had, entries, errors := 0.0, h.age(), !h.success.IsZero(), h.entries, maps.Clone(h.errors)
		if h.up {
			up = 1
		}
		h.mu.Unlock()
		to <- prometheus.MustNewConstMetric(descUp, prometheus.GaugeValue, up, h.name)
		if had {
			to <- prometheus.MustNewConstMetric(descAge, prometheus.GaugeValue, age.Seconds(), h.name)
		}
		to <- prometheus.MustNewConstMetric(descEntries, prometheus.GaugeValue, float64(entries), h.name)
		for _, reason := range slices.Sorted(maps.Keys(errors)) {
			to <- prometheus.MustNewConstMetric(descErrors, prometheus.CounterValue, float64(errors[reason]), h.name, reason)
		}
	}
}
