package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"strings"
)

// serveHealth answers as dcgm-exporter does: always 200, the state in headers.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	st := s.o.Status()
	w.Header().Set("X-Registry-Available", strconv.FormatBool(st.Available))
	text := "OK"
	if st.Reloading {
		w.Header().Set("X-Reload-In-Progress", "true")
		text = "OK - reload in progress"
	}
	writeText(w, http.StatusOK, text)
}

// serveLivez says that the process answers, and no more: restarting it would
// repair no device.
func serveLivez(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

func (s *Server) serveReadyz(w http.ResponseWriter, _ *http.Request) {
	reasons := s.o.Status().NotReady
	if s.draining.Load() {
		reasons = append(reasons[:len(reasons):len(reasons)], "shutting down")
	}
	if len(reasons) == 0 {
		writeText(w, http.StatusOK, "ok\n")
		return
	}
	var b strings.Builder
	for _, reason := range reasons {
		b.WriteString(strings.ReplaceAll(reason, "\n", " "))
		b.WriteByte('\n')
	}
	writeText(w, http.StatusServiceUnavailable, b.String())
}

const indexStyle = `
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 40rem; margin: 3rem auto; padding: 0 1rem; }
h1 { margin: 0; font-size: 1.6rem; }
p { margin: .2rem 0 1.5rem; opacity: .7; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .4rem 1.5rem; }
dt { font-family: ui-monospace, monospace; }
dd { margin: 0; }
`

var indexTemplate = template.Must(template.New("index").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>warpgauge</title>
<style>{{.Style}}</style>
</head>
<body>
<h1>warpgauge</h1>
<p>GPU metrics for Prometheus{{with .Version}}, version {{.}}{{end}}</p>
<dl>
{{range .Links}}<dt><a href="{{.Path}}">{{.Path}}</a></dt><dd>{{.Text}}</dd>
{{end}}</dl>
</body>
</html>
`))

type link struct{ Path, Text string }

// serveIndex makes the page at /, once.
func serveIndex(version string, pprof bool) http.HandlerFunc {
	links := []link{
		{"/metrics", "metrics of the GPUs and of the exporter itself"},
		{"/health", "answers as long as the process runs, with its state in headers"},
		{"/livez", "the process answers"},
		{"/readyz", "whether there are metrics to serve, and if not, why"},
	}
	if pprof {
		links = append(links, link{pprofPrefix, "Go profiles of the exporter"})
	}
	var b bytes.Buffer
	err := indexTemplate.Execute(&b, struct {
		Style   template.CSS
		Version string
		Links   []link
	}{indexStyle, version, links})
	if err != nil {
		panic("render index: " + err.Error()) // the template does not fit its data
	}
	sum := sha256.Sum256([]byte(indexStyle))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(b.Len()))
		h.Set("Referrer-Policy", "no-referrer")
		if h.Get("Content-Security-Policy") == "" { // else the web config file has one
			h.Set("Content-Security-Policy", policy)
		}
		_, _ = w.Write(b.Bytes()) // an error says that the client went away
	}
}
