package fleet

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// operators returns the server for operators: the JSON API and the metrics.
func (s *Server) operators(login *Login) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/fleet", s.serveFleet)
	mux.HandleFunc("GET /api/v1/agents", s.serveAgents)
	mux.HandleFunc("POST /api/v1/cohorts/{cohort}/{command}", s.serveCommand)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.o.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: messageWithin}))
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return s.bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if r.URL.Path == "/healthz" {
			s.locked(func(*core) {})
			_, _ = w.Write([]byte("ok\n")) // the client went away
			return
		}
		if _, ok := login.who(r); !ok {
			h.Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a token is needed", http.StatusUnauthorized)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
		guarded.ServeHTTP(w, r)
	}), 2*time.Minute)
}

func (s *Server) serveFleet(w http.ResponseWriter, _ *http.Request) {
	var answer *Fleet
	s.locked(func(c *core) { answer = c.fleet(time.Now()) })
	reply(w, answer)
}

// serveAgents answers /api/v1/agents?cohort=NAME&condition=NAME.
func (s *Server) serveAgents(w http.ResponseWriter, r *http.Request) {
	answer := Agents{Time: time.Now().UTC()}
	s.locked(func(c *core) { answer.Agents = c.find(r.FormValue("cohort"), r.FormValue("condition"), time.Now()) })
	reply(w, answer)
}

func (s *Server) serveCommand(w http.ResponseWriter, r *http.Request) {
	var err error
	s.locked(func(c *core) {
		err = c.command(r.PathValue("cohort"), r.PathValue("command"), r.RemoteAddr, time.Now())
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	s.serveFleet(w, r)
}

func reply(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client went away
}

// fleet describes the directory and the cohorts, without single agents.
func (c *core) fleet(now time.Time) *Fleet {
	f := &Fleet{Time: time.Now().UTC(), Version: c.o.Version, Agents: len(c.agents), Limit: c.o.MaxAgents}
	if c.planErr != nil {
		f.Directory.Err = c.planErr.Error()
	}
	if c.saveErr != nil {
		f.StateErr = c.saveErr.Error()
	}
	if !c.planTime.IsZero() {
		f.Directory.Hash, f.Directory.Taken = c.plan.Hash, new(c.planTime.UTC())
	}
	agents := map[*Cohort]map[string]int{}
	for _, cohort := range c.plan.Cohorts {
		agents[cohort] = map[string]int{Current: 0, Waiting: 0, Refused: 0, Failing: 0, Silent: 0, Observed: 0}
	}
	for _, a := range c.agents {
		if a.cohort == nil {
			f.NoCohort++
			continue
		}
		condition, _ := c.condition(a, now)
		agents[a.cohort][condition]++
	}
	for _, cohort := range c.plan.Cohorts {
		out := CohortState{status: *c.cohorts[cohort.Name], List: cohort.List.Name, Directory: cohort.List.Hash, Agents: agents[cohort]}
		if out.Rollout != nil {
			r := *out.Rollout // copied, because the core changes its own
			out.Rollout, out.Counts = &r, out.counts
			out.Stages, out.Soak = len(cohort.Policy.Stages), cohort.Policy.stage(&r).Soak.Seconds()
		}
		f.Cohorts = append(f.Cohorts, out)
	}
	return f
}

// condition returns the agent's condition and the reason for it.
func (c *core) condition(a *agent, now time.Time) (condition, why string) {
	s := c.statusOf(a)
	switch {
	case a.left:
		return Silent, "it has said that it stops"
	case now.Sub(a.seen) > silentAfter:
		return Silent, ""
	case s == nil:
		return Observed, ""
	}
	hash := wanted(s, a.uid, a.hash)
	switch {
	case hash == "" || hash == a.hash && a.observes():
		return Observed, a.err
	case hash != a.hash:
		return Waiting, ""
	case a.refuses() != "":
		return Refused, a.refuses()
	case a.state != protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED:
		return Waiting, ""
	case a.failing != "" && s.Rollout.has(a.uid):
		return Failing, a.failing
	}
	return Current, ""
}

// find returns agents, ordered by host. An empty cohort or condition matches every agent.
func (c *core) find(cohort, condition string, now time.Time) []AgentState {
	out := []AgentState{}
	for _, a := range c.agents {
		is, why := c.condition(a, now)
		if cohort != "" && (a.cohort == nil || a.cohort.Name != cohort) || condition != "" && is != condition {
			continue
		}
		state := AgentState{
			UID: a.uid.String(), Host: a.host(), Version: a.labels["service.version"], Labels: a.labels, Condition: is, Answered: a.hash, Effective: a.effective,
			Error: why, Refused: a.refused, Refusal: a.refusal, Healthy: a.healthy, Troubles: a.troubles, Seen: a.seen.UTC(),
			Numbers: a.window.numbers(now),
		}
		if a.cohort != nil {
			state.Cohort = a.cohort.Name
		}
		if s := c.statusOf(a); s != nil {
			state.Wanted = wanted(s, a.uid, a.hash)
			if state.Canary = s.Rollout.has(a.uid); state.Canary {
				state.Before = s.Rollout.members[a.uid].Before
			}
		}
		out = append(out, state)
	}
	slices.SortFunc(out, func(a, b AgentState) int { return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.UID, b.UID)) })
	return out
}
