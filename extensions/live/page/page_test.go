package page

import (
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

// ask sends a GET request with the headers Accept and If-None-Match.
func ask(h http.Handler, path, accept, etag string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestIndex(t *testing.T) {
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	h := Handler(Options{Version: "1.2.3 <&>", Live: true, Pprof: true})
	f := func(accept, contentType string, want ...string) {
		t.Helper()
		w := ask(h, "/", accept, "")
		testkit.Equal(t, "Content-Type for Accept: "+accept, contentType, w.Header().Get("Content-Type"))
		testkit.Has(t, "Accept: "+accept, w.Body.String(), want...)
	}
	const text, html = "text/plain; charset=utf-8", "text/html; charset=utf-8"
	f("", text, "/metrics ", "/health ", "/livez ", "/readyz ", "/api/v1/openapi.json ", "/debug/pprof/ ", "1.2.3 <&>")
	f("*/*", text) // curl
	f("text/plain, text/html;q=0", text)
	f(browser, html, `href="metrics"`, `href="health"`, `href="livez"`, `href="readyz"`, `href="api/v1/openapi.json"`, `href="debug/pprof/"`, "1.2.3 &lt;&amp;&gt;", `src="page/main.js"`)
	f("TEXT/HTML", html)

	off := ask(Handler(Options{}), "/", browser, "").Body.String()
	testkit.Lacks(t, "without the live part", off, "<script", "api/v1", "pprof", "<dialog")
}

// TestNothingFromElsewhere: the served files name no other server, have no inline script or style,
// and send a matching policy.
func TestNothingFromElsewhere(t *testing.T) {
	h := Handler(Options{Live: true})
	address := regexp.MustCompile(`(https?:)?//[a-z0-9.-]+\.[a-z]{2,}|url\(|@import|<style|style=|\son[a-z]+=|<script(?:[^>]*)>[^<]`)
	page := ask(h, "/", "text/html", "")
	bodies := map[string]string{"/": page.Body.String()}
	entries := testkit.Get(web.ReadDir("web"))(t)
	for _, e := range entries {
		name := e.Name()
		if name == "index.html" {
			continue
		}
		w := ask(h, "/page/"+name, "", "")
		testkit.Equal(t, name, http.StatusOK, w.Code)
		testkit.Equal(t, name+": Content-Security-Policy", policy, w.Header().Get("Content-Security-Policy"))
		bodies[name] = w.Body.String()
	}
	testkit.FatalIf(t, len(bodies) < 10, "only %d files", len(bodies))
	imports := regexp.MustCompile(`from '([^']+)'`)
	for name, body := range bodies {
		testkit.Equal(t, "address in "+name, "", address.FindString(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", "")))
		for _, m := range imports.FindAllStringSubmatch(body, -1) {
			testkit.ErrorIf(t, bodies[path.Base(m[1])] == "" || !strings.HasPrefix(m[1], "./"), "%s imports %q, which is not served", name, m[1])
		}
	}
	testkit.Has(t, "Content-Security-Policy", page.Header().Get("Content-Security-Policy"),
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:", "frame-ancestors 'none'")
}

func TestFiles(t *testing.T) {
	h := Handler(Options{Live: true})
	first := ask(h, "/page/main.js", "", "")
	etag := first.Header().Get("ETag")
	got := first.Header().Get("Content-Type")
	testkit.ErrorIf(t, got != "text/javascript; charset=utf-8" || etag == "", "main.js: Content-Type %q, ETag %q", got, etag)
	again := ask(h, "/page/main.js", "", etag)
	testkit.ErrorIf(t, again.Code != http.StatusNotModified || again.Body.Len() != 0, "main.js again: %d with %d bytes, want 304 without", again.Code, again.Body.Len())
	html, text := ask(h, "/", "text/html", ""), ask(h, "/", "", "")
	testkit.ErrorIf(t, html.Header().Get("ETag") == text.Header().Get("ETag") || html.Header().Get("Vary") != "Accept", "a cache would mix the two forms of /")
	w := httptest.NewRecorder()
	w.Header().Set("Content-Security-Policy", "of the web configuration file")
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	testkit.Equal(t, "Content-Security-Policy", "of the web configuration file", w.Header().Get("Content-Security-Policy"))
	for _, no := range []string{"/page/", "/page/index.html", "/page/../page.go", "/page/page.go", "/other", "/style.css/"} {
		testkit.Equal(t, "status of "+no, http.StatusNotFound, ask(h, no, "", "").Code)
	}
}
