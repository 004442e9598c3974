package fleet

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Operators returns the server for operators: the page, the JSON API and the metrics.
func (s *Server) Operators(login *Login) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.servePage)
	mux.HandleFunc("GET /api/v1/fleet", s.serveFleet)
	mux.HandleFunc("GET /api/v1/agents", s.serveAgents)
	mux.HandleFunc("POST /api/v1/cohorts/{cohort}/{command}", s.serveCommand)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.o.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: callWithin}))
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Cache-Control", "no-store")
			h.Set("Content-Security-Policy", contentPolicy)
			h.Set("Referrer-Policy", "no-referrer")
			if r.URL.Path == "/healthz" {
				s.serveHealth(w, r)
				return
			}
			if !login.Allows(r) {
				h.Set("WWW-Authenticate", `Basic realm="warpgauge-fleet", charset="UTF-8"`)
				http.Error(w, "a token is needed", http.StatusUnauthorized)
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
			guarded.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: messageWithin, ReadTimeout: messageWithin, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: httpErrors(s.o.Log),
	}
}

// serveHealth answers 200 if the owner of the state answers.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	if err := s.do(r.Context(), func(*core) {}); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n")) // the client went away
}

// ask returns what f makes of the state.
func ask[T any](s *Server, r *http.Request, f func(*core) T) (out T, err error) {
	answers := make(chan T, 1)
	if err := s.do(r.Context(), func(c *core) { answers <- f(c) }); err != nil {
		return out, err
	}
	return <-answers, nil
}

func (s *Server) serveFleet(w http.ResponseWriter, r *http.Request) {
	answer, err := ask(s, r, func(c *core) *Fleet { return c.fleet(time.Now()) })
	reply(w, answer, err)
}

const (
	defaultAgents = 1000
	mostAgents    = 5000 // of an answer
)

// serveAgents answers /api/v1/agents?cohort=NAME&condition=NAME&host=NAME&after=UID&limit=N.
func (s *Server) serveAgents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := filter{cohort: q.Get("cohort"), condition: q.Get("condition"), host: q.Get("host"), limit: defaultAgents}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostAgents {
			http.Error(w, "limit is a number from 1 to "+strconv.Itoa(mostAgents), http.StatusBadRequest)
			return
		}
		f.limit = n
	}
	if text := q.Get("after"); text != "" {
		uid, err := hex.DecodeString(text)
		if err != nil || len(uid) != len(f.after) {
			http.Error(w, "after is a uid in hex", http.StatusBadRequest)
			return
		}
		f.after = UID(uid)
	}
	answer, err := ask(s, r, func(c *core) *Agents { return c.find(&f, time.Now()) })
	reply(w, answer, err)
}

func (s *Server) serveCommand(w http.ResponseWriter, r *http.Request) {
	var failed error
	answer, err := ask(s, r, func(c *core) *Fleet {
		failed = c.command(r.PathValue("cohort"), r.PathValue("command"), r.RemoteAddr, time.Now())
		return c.fleet(time.Now())
	})
	if err == nil && failed != nil {
		http.Error(w, failed.Error(), http.StatusConflict)
		return
	}
	reply(w, answer, err)
}

func reply(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client went away
}

// fleet describes all but the agents one by one.
func (c *core) fleet(now time.Time) *Fleet {
	f := &Fleet{Time: time.Now().UTC(), Version: c.o.Version, Agents: len(c.agents), Limit: c.o.MaxAgents}
	if c.planErr != nil {
		f.Directory.Err = c.planErr.Error()
	}
	if c.saveErr != nil {
		f.StateErr = c.saveErr.Error()
	}
	if c.plan == nil {
		f.NoCohort = len(c.agents)
		return f
	}
	taken := c.planTime.UTC()
	f.Directory.Hash, f.Directory.Taken = c.plan.Hash, &taken
	by := map[*Cohort]map[string]int{}
	for _, a := range c.agents {
		if a.cohort == nil {
			f.NoCohort++
			continue
		}
		if by[a.cohort] == nil {
			by[a.cohort] = map[string]int{}
		}
		condition, _ := c.condition(a, now)
		by[a.cohort][condition]++
	}
	for _, cohort := range c.plan.Cohorts {
		s := c.cohorts[cohort.Name]
		out := CohortState{
			Name: cohort.Name, Priority: cohort.Priority, List: cohort.List.Name, Directory: cohort.List.Hash,
			Stable: s.Stable, Rejected: s.Rejected, Warnings: cohort.Warnings, Agents: map[string]int{},
		}
		for _, name := range conditions() {
			out.Agents[name] = by[cohort][name]
		}
		if r := s.Rollout; r != nil {
			stages := cohort.Policy.Stages
			out.Rollout = &RolloutState{
				ID: r.ID, From: r.From, To: r.To, State: r.State, Stage: r.Stage + 1, Stages: len(stages), Soaked: r.Soaked.Seconds(),
				Soak: stages[min(max(r.Stage, 0), len(stages)-1)].Soak.Seconds(), Started: r.Started, Reason: r.Reason,
			}
			if n, ok := c.counts[s.Name]; ok {
				out.Rollout.Counts = &n
			}
		}
		f.Cohorts = append(f.Cohorts, out)
	}
	return f
}

// condition says in a word how an agent is, and why.
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
	case a.failing != "" && s.Rollout != nil && hash == s.Rollout.To:
		return Failing, a.failing
	}
	return Current, ""
}

type filter struct {
	cohort, condition, host string
	after                   UID
	limit                   int
}

// find returns agents in the order of their uids.
func (c *core) find(f *filter, now time.Time) *Agents {
	var found []*agent
	for _, a := range c.agents {
		if f.cohort != "" && (a.cohort == nil || a.cohort.Name != f.cohort) || f.host != "" && a.host != f.host || bytes.Compare(a.uid[:], f.after[:]) <= 0 {
			continue
		}
		if condition, _ := c.condition(a, now); f.condition != "" && condition != f.condition {
			continue
		}
		found = append(found, a)
	}
	slices.SortFunc(found, func(a, b *agent) int { return bytes.Compare(a.uid[:], b.uid[:]) })
	out := &Agents{Time: time.Now().UTC(), Agents: []AgentState{}}
	if len(found) > f.limit {
		found = found[:f.limit]
		out.Next = found[f.limit-1].uid.String()
	}
	for _, a := range found {
		condition, why := c.condition(a, now)
		state := AgentState{
			UID: a.uid.String(), Host: a.host, Version: a.version, Labels: a.labels, Condition: condition, Answered: a.hash, Effective: a.effective,
			Error: why, Refused: a.refused.hash, Refusal: a.refused.why, Healthy: a.healthy, Troubles: a.troubles, Seen: a.seen.UTC(), WebSocket: a.conn != nil,
			Numbers: a.window.numbers(now), Before: a.before,
		}
		if a.peer.IsValid() {
			state.Address = a.peer.String()
		}
		if s := c.statusOf(a); s != nil {
			state.Wanted = wanted(s, a.uid, a.hash)
			state.Canary = s.Rollout.has(a.uid)
		}
		if a.cohort != nil {
			state.Cohort = a.cohort.Name
		}
		out.Agents = append(out.Agents, state)
	}
	return out
}
