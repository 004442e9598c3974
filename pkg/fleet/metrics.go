package fleet

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics asks the owner of the state at each scrape. Cohorts are at most 64, so are the series of each family
// times its other labels.
type metrics struct{ s *Server }

func newMetrics(s *Server) *metrics { return &metrics{s} }

const namePrefix = "warpgauge_fleet_"

func describeMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namePrefix+name, help, labels, nil)
}

//nolint:gochecknoglobals // descriptions do not change
var (
	descAgents     = describeMetric("agents", "Agents of a cohort by their condition.", "cohort", "condition")
	descNoCohort   = describeMetric("agents_without_cohort", "Agents that no cohort's selector matches.")
	descLimit      = describeMetric("agents_limit", "Agents that this server may have.")
	descState      = describeMetric("rollout_state", "1 for the state of the cohort's last rollout: held, running, paused, done or stopped.", "cohort", "state")
	descStage      = describeMetric("rollout_stage", "Stage of a rollout that is neither done nor stopped, from 1; 0: none has begun.", "cohort")
	descStages     = describeMetric("rollout_stages", "Stages that the cohort's rollouts have.", "cohort")
	descSoaked     = describeMetric("rollout_soaked_seconds", "How long all agents of the stage have run the list.", "cohort")
	descMembers    = describeMetric("rollout_agents", "Agents of a rollout's stages by how they are: applied, pending, refused, failing or silent.", "cohort", "condition")
	descResults    = describeMetric("rollouts_total", "Rollouts that ended, by result: done, stopped or rolled back.", "cohort", "result")
	descList       = describeMetric("list_info", "1 for each list of a cohort by its role: stable, target or rejected.", "cohort", "role", "hash")
	descDirectory  = describeMetric("directory_ok", "1 if the directory as it is now is in use, 0 if it was refused and the one before stays.")
	descTaken      = describeMetric("directory_taken_timestamp_seconds", "When the directory in use was taken.")
	descSaved      = describeMetric("state_ok", "1 if the state is on the disk, 0 if the last write failed.")
	descSaveErrors = describeMetric("state_write_errors_total", "Writes of the state that failed.")
	descMessages   = describeMetric("messages_total", "Messages of agents by transport.", "transport")
	descOffers     = describeMetric("offers_total", "Lists that were sent to agents.")
	descDuplicates = describeMetric("duplicate_uids_total", "Messages with the instance uid of another host; the agent got another one.")
	descEvicted    = describeMetric("agents_evicted_total", "Agents that were forgotten to make room for others.")
	descStateBytes = describeMetric("state_bytes", "Size of the state's file.")
)

// Describe sends nothing: the families are the same at each scrape, but some have no series.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends what the owner of the state answers; nothing if it does not answer in time.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.s.refused.Collect(out)
	type answer struct {
		fleet   *Fleet
		totals  totals
		results map[[2]string]uint64
		bytes   int64
	}
	answers := make(chan answer, 1)
	if m.s.do(context.Background(), func(c *core) {
		results := map[[2]string]uint64{}
		for k, n := range c.totals.results {
			if c.cohorts[k[0]] != nil {
				results[k] = n
			}
		}
		answers <- answer{c.fleet(time.Now()), c.totals, results, c.store.good}
	}) != nil {
		return
	}
	a := <-answers
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for k, n := range a.results {
		counter(descResults, n, k[0], k[1])
	}
	counter(descMessages, a.totals.messages-a.totals.websocket, "http")
	counter(descMessages, a.totals.websocket, "websocket")
	counter(descOffers, a.totals.offers)
	counter(descDuplicates, a.totals.duplicates)
	counter(descEvicted, a.totals.evicted)
	counter(descSaveErrors, a.totals.saveErrors)
	gauge(descStateBytes, float64(a.bytes))
	f := a.fleet
	gauge(descSaved, truth(f.StateErr == ""))
	gauge(descLimit, float64(f.Limit))
	gauge(descNoCohort, float64(f.NoCohort))
	gauge(descDirectory, truth(f.Directory.Err == "" && f.Directory.Taken != nil))
	if t := f.Directory.Taken; t != nil {
		gauge(descTaken, float64(t.UnixMilli())/1000)
	}
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
	for _, state := range []State{Held, Running, Paused, Done, Stopped} {
		gauge(descState, truth(r.State == state), c.Name, string(state))
	}
	gauge(descStages, float64(r.Stages), c.Name)
	if r.State == Done || r.State == Stopped {
		return
	}
	list("target", r.To)
	gauge(descStage, float64(r.Stage), c.Name)
	gauge(descSoaked, r.Soaked, c.Name)
	if n := r.Counts; n != nil {
		gauge(descMembers, float64(n.Applied), c.Name, "applied")
		gauge(descMembers, float64(n.Pending), c.Name, "pending")
		gauge(descMembers, float64(n.Refused), c.Name, "refused")
		gauge(descMembers, float64(n.Failing), c.Name, "failing")
		gauge(descMembers, float64(n.Silent), c.Name, "silent")
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
