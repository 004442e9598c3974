package accounts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"warpgauge/extensions/accounts/report"
	"warpgauge/pkg/field"
)

// Prefix is the path of all reports; a report's ID follows a slash.
const Prefix = "/api/v1/owners"

// maxReports bounds the answers that are made at a time.
const maxReports = 4

// API serves the reports as JSON.
type API struct {
	ledger *Ledger
	making chan struct{}
}

// NewAPI returns the API of a Ledger.
func NewAPI(l *Ledger) *API { return &API{l, make(chan struct{}, maxReports)} }

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	fail := func(status int, detail string) {
		h.Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail})
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		fail(http.StatusMethodNotAllowed, "the API changes nothing: use GET or HEAD")
		return
	case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
		fail(http.StatusForbidden, "a page of another site asked: open this address itself")
		return
	}
	select {
	case a.making <- struct{}{}:
		defer func() { <-a.making }()
	default:
		h.Set("Retry-After", "1")
		fail(http.StatusServiceUnavailable, "too many requests at a time: ask again in a second")
		return
	}
	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Prefix), "/")
	var answer any
	if id == "" {
		answer = map[string]any{"owners": reports(a.ledger, "")}
	} else {
		found := reports(a.ledger, id)
		if len(found) == 0 {
			fail(http.StatusNotFound, fmt.Sprintf("no owner %q has used a GPU of this node within a day; %s lists them", id, Prefix))
			return
		}
		answer = found[0]
	}
	text, err := json.Marshal(answer)
	if err != nil {
		fail(http.StatusInternalServerError, err.Error())
		return
	}
	h.Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second)) // a test's recorder has none
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // an error means that the client has gone
	}
}

// reports returns the reports of all owners without their boards, or those of an ID, the newest first. An ID of a pod without its
// uid means all pods of this name.
func reports(l *Ledger, id string) []*report.Report {
	l.mu.Lock()
	l.count(time.Now())
	found := l.copies(func(a *account) bool {
		name := a.owner.ID()
		return id == "" || name == id || strings.HasPrefix(name, id+":") && strings.Count(id, ":") == 2
	})
	l.mu.Unlock()
	return reportsOf(found, l.o.Node, id != "")
}

// reportsOf returns the reports of accounts.
func reportsOf(all []copied, node string, boards bool) (out []*report.Report) {
	of := map[string]*report.Report{}
	for i := range all {
		a := &all[i]
		name := a.owner.ID()
		r := of[name]
		if r == nil {
			r = &report.Report{ID: name, Owner: a.owner, Nodes: []string{node}}
			r.Container = ""
			of[name] = r
			out = append(out, r)
		}
		r.Boards = append(r.Boards, boardOfReport(a, node))
	}
	for _, r := range out {
		if r.Finish(); !boards {
			r.Boards = nil
		}
	}
	slices.SortFunc(out, func(a, b *report.Report) int { return b.Came.Compare(a.Came) })
	return out
}

func boardOfReport(a *copied, node string) report.Board {
	d := &a.device
	b := report.Board{Node: node, GPU: d.GPU, UUID: d.UUID, Model: d.Model, Container: a.owner.Container, Came: time.Unix(0, a.came), Verdicts: slices.Clone(a.verdicts)}
	if a.left > 0 && a.until >= a.left { // else its last rows are not counted yet
		b.Left = new(time.Unix(0, a.left))
	}
	b.Use = report.Use{
		GPUSeconds: a.held(), Methods: map[string]float64{}, Spent: map[string]float64{}, Busy: a.busy.Spread(), Tensor: a.tensor.Spread(), OFU: a.ofu.Spread(), XIDs: a.xids,
	}
	for source := range a.energy {
		for method := range a.energy[source] {
			for state, e := range a.energy[source][method] {
				j := float64(e) / 1e6
				if b.Energy += j; e > 0 {
					b.Methods[methodNames[method]] += j
				}
				if state == stateIdle {
					b.IdleEnergy += j
				}
				if source == fromPower {
					b.FromPower += j
				}
			}
		}
	}
	for kind, seconds := range a.spent {
		if seconds > 0 {
			b.Spent[kindNames[kind]] = seconds
		}
	}
	for bit, seconds := range a.throttled {
		if reason, known := field.ClockReason(bit); known && seconds > 0 {
			if b.Throttled == nil {
				b.Throttled = map[string]float64{}
			}
			b.Throttled[reason] = seconds
		}
	}
	if a.size > 0 {
		b.Memory, b.MemorySize = new(a.peak), new(a.size)
	}
	if unused := a.unused(); unused >= 0 {
		b.Unused = new(unused.Seconds())
	}
	return b
}
