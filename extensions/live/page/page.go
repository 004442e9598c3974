// Package page serves the live page at /: one HTML page with ES modules and a style
// sheet, which are part of the binary. The page shows what /api/v1/ answers; it asks
// nothing of any other server, and works under any path prefix. A client that does not
// accept HTML gets the list of paths as text.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed web
var web embed.FS

// Options of the page. The zero value is a list of paths without a live part.
type Options struct {
	Version string
	Live    bool // /api/v1/ is served
	Pprof   bool // /debug/pprof/ is served
}

// policy lets the page load what this package serves, and ask /api/v1/.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// link is a path of the exporter, relative to the page.
type link struct{ Path, Text string }

// file is an answer that is made once.
type file struct {
	contentType string
	body        []byte
	etag        string
}

// Handler answers GET / and GET /page/FILE. What it answers is made once.
func Handler(o Options) http.Handler {
	links := []link{
		{"metrics", "metrics of the GPUs and of the exporter itself"},
		{"health", "answers as long as the process runs, with its state in headers"},
		{"livez", "the process answers"},
		{"readyz", "whether there are metrics to serve, and if not, why"},
	}
	if o.Live {
		links = append(links, link{"api/v1/openapi.json", "description of the JSON API, which this page shows"})
	}
	if o.Pprof {
		links = append(links, link{"debug/pprof/", "Go profiles of the exporter"})
	}
	html, text := index(o, links)

	files := assets()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := files[strings.TrimPrefix(r.URL.Path, "/page/")]
		if r.URL.Path == "/" {
			w.Header().Set("Vary", "Accept")
			if f = text; acceptsHTML(r.Header["Accept"]) {
				f = html
			}
		}
		if f == nil {
			http.NotFound(w, r)
			return
		}
		f.serve(w, r)
	})
}

// assets are the files that the page loads.
func assets() map[string]*file {
	types := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
	entries, err := fs.ReadDir(web, "web")
	if err != nil {
		panic("embedded page: " + err.Error())
	}
	out := map[string]*file{}
	for _, e := range entries {
		if contentType := types[path.Ext(e.Name())]; contentType != "" {
			out[e.Name()] = newFile(contentType, read(e.Name()))
		}
	}
	return out
}

func read(name string) []byte {
	b, err := web.ReadFile("web/" + name)
	if err != nil {
		panic("embedded page: " + err.Error())
	}
	return b
}

// index makes the two forms of /.
func index(o Options, links []link) (html, text *file) {
	var b bytes.Buffer
	t := template.Must(template.New("index").Parse(string(read("index.html"))))
	if err := t.Execute(&b, struct {
		Options
		Links []link
	}{o, links}); err != nil {
		panic("render index: " + err.Error()) // the template does not fit its data
	}
	html = newFile("text/html; charset=utf-8", b.Bytes())

	b = bytes.Buffer{}
	fmt.Fprintf(&b, "warpgauge %s: GPU metrics for Prometheus. In a browser this is a live page.\n\n", o.Version)
	for _, l := range links {
		fmt.Fprintf(&b, "/%-20s %s\n", l.Path, l.Text)
	}
	return html, newFile("text/plain; charset=utf-8", b.Bytes())
}

func newFile(contentType string, body []byte) *file {
	sum := sha256.Sum256(body)
	return &file{contentType, body, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// serve sends the file, or says that the client has it. An upgrade of the exporter shows
// at once, because a browser asks each time.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("ETag", f.etag)
	h.Set("Cache-Control", "no-cache")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Content-Security-Policy") == "" { // else the web config file has one
		h.Set("Content-Security-Policy", policy)
	}
	h.Set("Content-Type", f.contentType)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}

// acceptsHTML reports whether a client's Accept header names HTML, as browsers do
// and curl does not.
func acceptsHTML(accept []string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, parameters, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "text/html") {
			return strings.ReplaceAll(parameters, " ", "") != "q=0"
		}
	}
	return false
}
