package lists

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var _ prometheus.Collector = (*Desk)(nil)

var (
	descGood = prometheus.NewDesc("warpgauge_config_last_reload_successful",
		"1 if the counters CSV was good when it was read last, 0 if it was not or could not be read: an older list is in service.", nil, nil)
	descSucceeded = prometheus.NewDesc("warpgauge_config_last_reload_success_timestamp_seconds",
		"When the counters CSV was last read with success, in Unix time.", nil, nil)
	descReloads = prometheus.NewDesc("warpgauge_config_reloads_total",
		"Reloads of the counters CSV by result; the first reading at start does not count.", []string{"result"}, nil)
	descList = prometheus.NewDesc("warpgauge_list_info",
		"1, labelled with the field list in service: where it comes from, its SHA-256 (with a configuration file that of both, one after the other), and what a server calls it.",
		[]string{"origin", "hash", "revision"}, nil)
	descApplied = prometheus.NewDesc("warpgauge_list_applied_timestamp_seconds",
		"When the field list in service was applied, in Unix time.", nil, nil)
	descPaused = prometheus.NewDesc("warpgauge_profiling_paused",
		"1 while profiling fields (DCGM_FI_PROF_…) are not read because they are paused.", nil, nil)

	descStatus = prometheus.NewDesc("warpgauge_remote_config_status",
		"1, labelled with what became of the server's list: waiting, applied, reported, refused, failed, ended, or unreachable while the server is.", []string{"status"}, nil)
	descRefused = prometheus.NewDesc("warpgauge_remote_refused_lines",
		"Refusals of the list that the server delivered last; /api/v1/list has them.", nil, nil)
	descUnkept = prometheus.NewDesc("warpgauge_remote_unkept",
		"1 if the list in service could not be kept in --remote-directory, else 0.", nil, nil)
	descUntil = prometheus.NewDesc("warpgauge_list_until_timestamp_seconds",
		"When the list in service ends and the former one returns, in Unix time. Absent if it stays.", nil, nil)
)

// Describe sends the descriptions of the Desk's metrics.
func (*Desk) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descGood, descSucceeded, descReloads, descList, descApplied, descPaused, descStatus, descRefused, descUnkept, descUntil} {
		ch <- d
	}
}

// Collect sends the status as metrics. It waits for nothing.
func (d *Desk) Collect(ch chan<- prometheus.Metric) {
	s := d.Status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descGood, oneIf(s.good))
	gauge(descSucceeded, float64(s.succeeded.UnixNano())/float64(time.Second))
	for result, n := range map[string]uint64{"success": s.successes, "unchanged": s.unchanged, "error": s.errors} {
		ch <- prometheus.MustNewConstMetric(descReloads, prometheus.CounterValue, float64(n), result)
	}
	gauge(descList, 1, s.InService.Origin, s.InService.Hash, s.InService.Revision)
	gauge(descApplied, float64(s.Applied.UnixMilli())/1000)
	gauge(descPaused, oneIf(s.Paused))
	if v := s.Delivery; v != nil {
		gauge(descStatus, 1, string(v.Condition()))
		gauge(descRefused, float64(len(v.Refused)))
		gauge(descUnkept, oneIf(v.Unkept != ""))
		if u := s.InService.Until; !u.IsZero() {
			gauge(descUntil, float64(u.Unix()))
		}
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
