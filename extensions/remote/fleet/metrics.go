package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const namePrefix = "warpgauge_fleet_"

// totals holds the counters.
type totals struct {
	refused, results     *prometheus.CounterVec
	messages, duplicates prometheus.Counter
}

func newTotals(r prometheus.Registerer) totals {
	newCounter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: namePrefix + name, Help: help}, labels)
	}
	return totals{
		messages:   newCounter("messages_total", "Messages of agents.").WithLabelValues(),
		refused:    newCounter("messages_refused_total", "Messages that were refused by reason: login, message, full or busy.", "reason"),
		results:    newCounter("rollouts_total", "Rollouts that ended, by result: done, stopped or rolled back.", "cohort", "result"),
		duplicates: newCounter("duplicate_uids_total", "Messages with the instance uid of another host or credential; the agent got another one.").WithLabelValues(),
	}
}

func describeMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namePrefix+name, help, labels, nil)
}

//nolint:gochecknoglobals // constant descriptions
var (
	descAgents    = describeMetric("agents", "Agents of a cohort by their condition.", "cohort", "condition")
	descNoCohort  = describeMetric("agents_without_cohort", "Agents that no cohort's selector matches.")
	descLimit     = describeMetric("agents_limit", "Agents that this server may have.")
	descState     = describeMetric("rollout_state", "1 for the state of the cohort's last rollout: running, paused, done or stopped.", "cohort", "state")
	descStage     = describeMetric("rollout_stage", "Stage of a rollout that is neither done nor stopped, from 1; 0: none has begun.", "cohort")
	descMembers   = describeMetric("rollout_agents", "Agents of a rollout's stages by how they are: applied, pending, refused, failing or silent.", "cohort", "condition")
	descList      = describeMetric("list_info", "1 for each list of a cohort by its role: stable, target or rejected.", "cohort", "role", "hash")
	descDirectory = describeMetric("directory_ok", "1 if the directory as it is now is in use, 0 if it was refused and the one before stays.")
	descSaved     = describeMetric("state_ok", "1 if the state is on the disk, 0 if the last write failed.")
)

// metrics collects from the state at each scrape. A family has at most 64 cohorts times its other labels.
type metrics struct{ s *Server }

// Describe sends nothing, which makes the collector unchecked: some families have no series at times.
func (metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m metrics) Collect(out chan<- prometheus.Metric) {
	var f *Fleet
	m.s.locked(func(c *core) { f = c.fleet(time.Now()) })
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descSaved, truth(f.StateErr == ""))
	gauge(descLimit, float64(f.Limit))
	gauge(descNoCohort, float64(f.NoCohort))
	gauge(descDirectory, truth(f.Directory.Err == "" && f.Directory.Taken != nil))
	for i := range f.Cohorts {
		cohortMetrics(&f.Cohorts[i], gauge)
	}
}

func cohortMetrics(c *CohortState, gauge func(*prometheus.Desc, float64, ...string)) {
	for condition, n := range c.Agents {
		gauge(descAgents, float64(n), c.Name, condition)
	}
	list := func(role, hash string) {
		if hash != "" {
			gauge(descList, 1, c.Name, role, hash)
		}
	}
	list("stable", c.Stable)
	list("rejected", c.Rejected)
	r := c.Rollout
	if r == nil {
		return
	}
	for _, state := range []State{Running, Paused, Done, Stopped} {
		gauge(descState, truth(r.State == state), c.Name, string(state))
	}
	if !r.active() {
		return
	}
	list("target", r.To)
	gauge(descStage, float64(r.Stage), c.Name)
	if n := c.Counts; n != nil {
		for condition, agents := range map[string]int{"applied": n.Applied, "pending": n.Pending, "refused": n.Refused, "failing": n.Failing, "silent": n.Silent} {
			gauge(descMembers, float64(agents), c.Name, condition)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
