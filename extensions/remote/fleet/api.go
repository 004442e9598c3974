package fleet

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// operators returns the server for operators: the page, the JSON API and the metrics.
func (s *Server) operators(login *Login) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.servePage)
	mux.HandleFunc("GET /api/v1/fleet", s.serveFleet)
	mux.HandleFunc("GET /api/v1/agents", s.serveAgents)
	mux.HandleFunc("POST /api/v1/cohorts/{cohort}/{command}", s.serveCommand)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.o.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: callWithin}))
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

func (s *Server) serveFleet(w http.ResponseWriter, r *http.Request) {
	answer, err := ask(r.Context(), s, func(c *core) *Fleet { return c.fleet(time.Now()) })
	reply(w, answer, err)
}

// serveAgents answers /api/v1/agents?cohort=NAME&condition=NAME.
func (s *Server) serveAgents(w http.ResponseWriter, r *http.Request) {
	answer, err := ask(r.Context(), s, func(c *core) *Agents {
		return &Agents{Time: time.Now().UTC(), Agents: c.find(r.FormValue("cohort"), r.FormValue("condition"), time.Now())}
	})
	reply(w, answer, err)
}

func (s *Server) serveCommand(w http.ResponseWriter, r *http.Request) {
	failed, err := ask(r.Context(), s, func(c *core) error {
		return c.command(r.PathValue("cohort"), r.PathValue("command"), r.RemoteAddr, time.Now())
	})
	if err == nil && failed != nil {
		http.Error(w, failed.Error(), http.StatusConflict)
		return
	}
	s.serveFleet(w, r)
}

func reply(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client went away
}

// contentPolicy lets the page load nothing but its own style sheet, which is in it.
const contentPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed page.html
var pageText string

// pageAgents bounds the table of agents that need attention.
const pageAgents = 200

// servePage writes the page. It is read-only: commands are for the command line.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	type data struct {
		*Fleet
		Trouble []AgentState
		More    bool
	}
	answer, err := ask(r.Context(), s, func(c *core) data {
		d := data{Fleet: c.fleet(time.Now())}
		for _, condition := range []string{Failing, Refused, Silent, Waiting} {
			d.Trouble = append(d.Trouble, c.find("", condition, time.Now())...)
		}
		return d
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if answer.More = len(answer.Trouble) > pageAgents; answer.More {
		answer.Trouble = answer.Trouble[:pageAgents]
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, answer); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // the client went away
}

//nolint:gochecknoglobals // parsed once, never changed
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"short": func(hash string) string { return hash[:min(len(hash), 12)] },
	"ago":   func(t time.Time) string { return time.Since(t).Truncate(time.Second).String() },
	"lines": func(text []string) string { return strings.Join(text, "; ") },
}).Parse(pageText))

// fleet describes all but the agents one by one.
func (c *core) fleet(now time.Time) *Fleet {
	f := &Fleet{Time: time.Now().UTC(), Version: c.o.Version, Agents: len(c.agents), Limit: c.o.MaxAgents}
	if c.planErr != nil {
		f.Directory.Err = c.planErr.Error()
	}
	if c.saveErr != nil {
		f.StateErr = c.saveErr.Error()
	}
	if !c.planTime.IsZero() {
		taken := c.planTime.UTC()
		f.Directory.Hash, f.Directory.Taken = c.plan.Hash, &taken
	}
	agents := map[*Cohort]map[string]int{}
	for _, cohort := range c.plan.Cohorts {
		agents[cohort] = map[string]int{}
		for _, name := range []string{Current, Waiting, Refused, Failing, Silent, Observed} {
			agents[cohort][name] = 0
		}
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
			r := *out.Rollout // the owner changes its own
			out.Rollout, out.Counts = &r, out.counts
			out.Stages, out.Soak = len(cohort.Policy.Stages), cohort.Policy.stage(&r).Soak.Seconds()
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
	case a.failing != "" && s.Rollout.has(a.uid):
		return Failing, a.failing
	}
	return Current, ""
}

// find returns agents in the order of their hosts; an empty cohort or condition is any.
func (c *core) find(cohort, condition string, now time.Time) []AgentState {
	out := []AgentState{}
	for _, a := range c.agents {
		is, why := c.condition(a, now)
		if cohort != "" && (a.cohort == nil || a.cohort.Name != cohort) || condition != "" && is != condition {
			continue
		}
		state := AgentState{
			UID: a.uid.String(), Host: a.host(), Version: a.labels["service.version"], Labels: a.labels, Condition: is, Answered: a.hash, Effective: a.effective,
			Error: why, Refused: a.refused, Refusal: a.refusal, Healthy: a.healthy, Troubles: a.troubles, Seen: a.seen.UTC(), WebSocket: a.conn != nil,
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
