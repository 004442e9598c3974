// Package page serves the live page at /: one HTML page with ES modules and a style sheet, all
// embedded in the binary. The page shows the answers of /api/v1/. It contacts no other server and
// works under any path prefix. A client that does not accept HTML gets the list of paths as text.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed web
var web embed.FS

// Options of the page. The zero value serves a list of paths without the live part.
type Options struct {
	Version string
	Live    bool // /api/v1/ is served
	Pprof   bool // /debug/pprof/ is served
}

// policy allows the page to load only files of this package and to query /api/v1/.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// link is a path of the exporter, relative to the page.
type link struct{ Path, Text string }

// types are the content types of the files that the page loads.
var types = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

// Handler answers GET / and GET /page/FILE.
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
	var html, text bytes.Buffer
	t := template.Must(template.ParseFS(web, "web/index.html"))
	if err := t.Execute(&html, struct {
		Options
		Links []link
	}{o, links}); err != nil {
		panic("render index: " + err.Error()) // the template does not fit its data
	}
	fmt.Fprintf(&text, "warpgauge %s: GPU metrics for Prometheus. In a browser this is a live page.\n\n", o.Version)
	for _, l := range links {
		fmt.Fprintf(&text, "/%-20s %s\n", l.Path, l.Text)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			w.Header().Set("Vary", "Accept")
			if acceptsHTML(r.Header["Accept"]) {
				serve(w, r, "text/html; charset=utf-8", html.Bytes())
			} else {
				serve(w, r, "text/plain; charset=utf-8", text.Bytes())
			}
			return
		}
		name := strings.TrimPrefix(r.URL.Path, "/page/")
		body, err := web.ReadFile("web/" + name)
		if contentType := types[path.Ext(name)]; err == nil && contentType != "" {
			serve(w, r, contentType, body)
			return
		}
		http.NotFound(w, r)
	})
}

// serve sends a body, or 304 if the client has it. Browsers revalidate each time, so an upgraded exporter shows at once.
func serve(w http.ResponseWriter, r *http.Request, contentType string, body []byte) {
	h := w.Header()
	h.Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(body)))
	h.Set("Cache-Control", "no-cache")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Content-Security-Policy") == "" { // unless the web configuration file sets one
		h.Set("Content-Security-Policy", policy)
	}
	h.Set("Content-Type", contentType)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// acceptsHTML reports whether an Accept header names HTML, as browsers send and curl does not.
func acceptsHTML(accept []string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, parameters, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "text/html") {
			return strings.ReplaceAll(parameters, " ", "") != "q=0"
		}
	}
	return false
}
