package server

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/exposition"
)

func TestPaths(t *testing.T) {
	plain := New(pagesOf(textPage), Options{Routes: Page(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("page " + r.URL.Path)) }))})
	full := New(pagesOf(textPage), Options{
		Pprof:  true,
		Status: func() Status { return Status{Reloading: true, NotReady: []string{"no field list", "no\ndevice"}} },
	})
	f := func(s *Server, method, path string, code int, body string) {
		t.Helper()
		w := ask(s, method, path)
		if w.Code != code || body != "" && w.Body.String() != body {
			t.Errorf("%s %s = %d %q, want %d %q", method, path, w.Code, w.Body, code, body)
		}
		testkit.Equal(t, fmt.Sprintf("%s %s: X-Content-Type-Options", method, path), "nosniff", w.Header().Get("X-Content-Type-Options"))
	}
	f(plain, "GET", "/metrics", 200, textPage)
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		for _, path := range []string{"/metrics", "/health", "/livez", "/readyz", "/"} {
			f(plain, method, path, 405, "Method Not Allowed\n")
		}
		f(full, method, "/debug/pprof/heap", 405, "Method Not Allowed\n")
	}
	f(plain, "GET", "/livez", 200, "ok\n")
	f(plain, "GET", "/readyz", 200, "ok\n")
	f(plain, "GET", "/", 200, "page /")
	f(plain, "GET", "/page/main.js", 200, "page /page/main.js")
	f(full, "GET", "/", 404, "404 page not found\n")
	for _, path := range []string{"/metrics/", "/metric", "/-/reload/", "/health/x", "/debug/pprof/", "/debug/pprof/heap", "/index.html"} {
		f(plain, "GET", path, 404, "404 page not found\n")
	}

	f(full, "GET", "/readyz", 503, "no field list\nno device\n")
	f(full, "GET", "/debug/pprof/", 200, "")
	f(full, "GET", "/debug/pprof/heap", 200, "")
	f(full, "GET", "/debug/pprof/nothing", 404, "")
	f(full, "GET", "/debug/pprof/cmdline", 200, "")
}

func TestMetricsNegotiation(t *testing.T) {
	s := New(pagesOf(textPage), Options{})
	f := func(accept, encoding string, format exposition.Format, zipped bool, body string) {
		t.Helper()
		w := ask(s, "GET", "/metrics", "Accept", accept, "Accept-Encoding", encoding)
		h := w.Header()
		testkit.Equal(t, fmt.Sprintf("Accept %q: Content-Type", accept), format.ContentType(), h.Get("Content-Type"))
		testkit.Equal(t, fmt.Sprintf("Accept %q: Content-Length", accept), strconv.Itoa(w.Body.Len()), h.Get("Content-Length"))
		testkit.Equal(t, fmt.Sprintf("Accept %q: Vary", accept), "Accept, Accept-Encoding", h.Get("Vary"))
		testkit.Equal(t, fmt.Sprintf("Accept-Encoding %q: is compressed", encoding), zipped, h.Get("Content-Encoding") == "gzip")
		got := w.Body.String()
		if zipped {
			got = gunzip(t, w.Body)
		}
		testkit.Equal(t, fmt.Sprintf("Accept %q, Accept-Encoding %q: body", accept, encoding), body, got)
	}
	const (
		openMetrics = "application/openmetrics-text;version=1.0.0"
		protobuf    = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	)
	f("", "", exposition.Text, false, textPage)
	f("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "identity", exposition.Text, false, textPage)
	f("", "gzip", exposition.Text, true, textPage)
	f(openMetrics, "", exposition.OpenMetrics, false, textPage+"# EOF\n")
	f(openMetrics, "gzip", exposition.OpenMetrics, true, textPage+"# EOF\n")
	f(protobuf, "", exposition.Protobuf, false, "")
	f(protobuf, "gzip", exposition.Protobuf, true, "")

	r := httptest.NewRequest(http.MethodGet, "/metrics", nil) // with a header in two lines
	r.Header["Accept"] = []string{"text/html", openMetrics}
	w := httptest.NewRecorder()
	if s.Handler().ServeHTTP(w, r); w.Header().Get("Content-Type") != exposition.OpenMetrics.ContentType() {
		t.Errorf("Accept in two lines: Content-Type = %q", w.Header().Get("Content-Type"))
	}
}

func gunzip(t *testing.T, r io.Reader) string {
	t.Helper()
	z, err := gzip.NewReader(r)
	must(t, err)
	text := testkit.Get(io.ReadAll(z))(t)
	return string(text)
}

func TestHealth(t *testing.T) {
	f := func(st Status, code int, body, available, reloading string) {
		t.Helper()
		w := ask(New(nil, Options{Status: func() Status { return st }}), "GET", "/health")
		h := w.Header()
		if w.Code != code || w.Body.String() != body || h.Get("X-Registry-Available") != available || h.Get("X-Reload-In-Progress") != reloading {
			t.Errorf("%+v: got %d %q with %v, want %d %q, available %q, reloading %q", st, w.Code, w.Body, h, code, body, available, reloading)
		}
	}
	f(Status{}, 200, "OK", "false", "")
	f(Status{Available: true}, 200, "OK", "true", "")
	f(Status{Available: true, Reloading: true}, 200, "OK - reload in progress", "true", "true")
	f(Status{Available: true, Unhealthy: "no GPU is up"}, 503, "no GPU is up\n", "true", "")
}

// blockingPages holds scrapes until they are released.
type blockingPages struct {
	Pages
	entered, release chan struct{}
}

func (p *blockingPages) Negotiated(accept, encoding string) ([]byte, string, bool) {
	p.entered <- struct{}{}
	<-p.release
	return p.Pages.Negotiated(accept, encoding)
}

func TestMaxConcurrentScrapes(t *testing.T) {
	pages := &blockingPages{pagesOf(textPage), make(chan struct{}), make(chan struct{})}
	s := New(pages, Options{MaxConcurrentScrapes: 2})
	codes := make(chan int)
	for range 2 {
		go func() { codes <- ask(s, "GET", "/metrics").Code }()
		<-pages.entered
	}
	for range 3 {
		w := ask(s, "GET", "/metrics")
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("third scrape = %d, Retry-After %q, want 503 and 1", w.Code, w.Header().Get("Retry-After"))
		}
	}
	testkit.Equal(t, "/health meanwhile", 200, ask(s, "GET", "/health").Code)
	close(pages.release)
	for range 2 {
		testkit.Equal(t, "scrape within the limit", 200, <-codes)
	}
	go func() { codes <- ask(s, "GET", "/metrics").Code }()
	<-pages.entered
	testkit.Equal(t, "scrape after the others", 200, <-codes)
}

func TestReloadRefusesOtherSites(t *testing.T) {
	var calls atomic.Int32
	s := New(nil, withDesk(func(context.Context, string) error { calls.Add(1); return nil }))
	name, _ := os.Hostname()
	for host, ours := range map[string]bool{
		"example.com": false, "example.com:9400": false, "127.0.0.1.example.com": false, "": false,
		"127.0.0.1:9400": true, "[::1]:9400": true, "localhost": true, name + ":9400": true,
	} {
		calls.Store(0)
		r := httptest.NewRequest(http.MethodPost, "/-/reload", nil)
		r.Host = host
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if got := calls.Load() == 1; got != ours || (w.Code == 200) != ours {
			t.Errorf("a browser on %q: %d %q, want it served: %v", host, w.Code, w.Body, ours)
		}
	}
}
