package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
)

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

// index is the page at /, made once.
type index struct {
	body   []byte
	length string
	policy string
}

func newIndex(version string, pprof bool) index {
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
	return index{
		body:   b.Bytes(),
		length: strconv.Itoa(b.Len()),
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}
}

func (x *index) serve(w http.ResponseWriter, r *http.Request) int {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", x.length)
	h.Set("Referrer-Policy", "no-referrer")
	if h.Get("Content-Security-Policy") == "" { // else the web config file has one
		h.Set("Content-Security-Policy", x.policy)
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(x.body) // the client went away
	}
	return http.StatusOK
}
