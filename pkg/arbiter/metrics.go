package arbiter

import "github.com/prometheus/client_golang/prometheus"

// metrics say who speaks for the GPUs and how often that changed.
type metrics struct {
	active    *prometheus.GaugeVec
	takeovers *prometheus.CounterVec
}

func newMetrics(o Options) *metrics {
	m := &metrics{
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "warpgauge_gpu_speaker",
			Help: "1 for the collector whose values of the NVIDIA GPUs are shown, 0 for the other.",
		}, []string{"collector"}),
		takeovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_gpu_takeovers_total",
			Help: "Times that this collector took the NVIDIA GPUs over from the other.",
		}, []string{"collector"}),
	}
	for _, name := range []string{o.Primary, o.Secondary} {
		m.active.WithLabelValues(name)
		m.takeovers.WithLabelValues(name)
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(m.active, m.takeovers)
	}
	return m
}

func (m *metrics) speaks(before, now string) {
	if before != "" {
		m.active.WithLabelValues(before).Set(0)
		m.takeovers.WithLabelValues(now).Inc()
	}
	m.active.WithLabelValues(now).Set(1)
}
