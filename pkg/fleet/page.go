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
	answer, err := ask(s, r, func(c *core) data {
		now := time.Now()
		d := data{Fleet: c.fleet(now)}
		for _, condition := range []string{Failing, Refused, Silent, Waiting} {
			if left := pageAgents - len(d.Trouble); left > 0 {
				found := c.find(&filter{condition: condition, limit: left}, now)
				d.Trouble = append(d.Trouble, found.Agents...)
				d.More = d.More || found.Next != ""
			}
		}
		return d
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
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
