package selfmetrics

import (
	"cmp"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with the metrics of every process: the Go runtime, the process, and
// warpgauge_build_info. Empty arguments become "unknown".
func NewRegistry(version, revision string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "warpgauge_build_info",
			Help:        "1, labelled with what the binary was built from.",
			ConstLabels: prometheus.Labels{"version": cmp.Or(version, "unknown"), "revision": cmp.Or(revision, "unknown"), "goversion": runtime.Version()},
		}, func() float64 { return 1 }),
	)
	return r
}
