package fleet

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"strings"
	"time"
)

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
