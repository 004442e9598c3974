package selfmetrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with the metrics of every process: the Go runtime, the process, and
// warpgauge_build_info. Empty arguments are shown as "unknown".
func NewRegistry(version, revision string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(version, revision),
	)
	return r
}

func buildInfo(version, revision string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "warpgauge_build_info",
		Help: "1, labelled with what the binary was built from.",
		ConstLabels: prometheus.Labels{
			"version":   orUnknown(version),
			"revision":  orUnknown(revision),
			"goversion": runtime.Version(),
		},
	})
	g.Set(1)
	return g
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
