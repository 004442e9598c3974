package apiv1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

// exporter starts a server with handler f and returns a client for it.
func exporter(t *testing.T, f http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return newTestClient(t, s.URL)
}

func newTestClient(t *testing.T, address string) *Client {
	t.Helper()
	c := testkit.Get(NewClient(address, ClientOptions{UserAgent: "warpgauge/test"}))(t)
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func TestClientAddress(t *testing.T) {
	for _, tt := range []struct{ address, want string }{
		{"localhost:9400", "http://localhost:9400"},
		{":9400", "http://localhost:9400"},
		{"http://node/", "http://node"},
		{"https://node:9400/metrics", "https://node:9400"},
		{"https://u:secret@proxy/gpus/metrics", "https://proxy/gpus"},
		{"[::1]:9400", "http://[::1]:9400"},
	} {
		testkit.Equal(t, fmt.Sprintf("URL of NewClient(%q)", tt.address), tt.want, newTestClient(t, tt.address).URL())
	}
	for _, address := range []string{"ftp://node", "http://", "http://u:secret@no de:x"} {
		_, err := NewClient(address, ClientOptions{})
		testkit.Has(t, address, fmt.Sprint(err), "http://HOST:PORT")
		testkit.Lacks(t, address, fmt.Sprint(err), "secret")
	}
}

// TestClientAsks checks the request of each method and the complete decoding of its answer.
func TestClientAsks(t *testing.T) {
	value, at := 42.5, time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)
	want := &Fields{Time: at, Devices: []DeviceFields{{ID: "GPU-1", Fields: []Field{{Name: "A", Value: &value}, {Name: "B", Absent: &Absence{Reason: "blank"}}}}}}
	asked := ""
	c := exporter(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		user, password, _ := r.BasicAuth()
		testkit.ErrorIf(t, user != "u" || password != "p:1" || r.Header.Get("User-Agent") != "warpgauge/test", "user %q, password %q, header %v", user, password, r.Header)
		err := json.NewEncoder(w).Encode(want)
		testkit.ErrorIf(t, err != nil, "%v", err)
	})
	c.user = url.UserPassword("u", "p:1")
	ctx := t.Context()
	f := func(want string, err error) {
		t.Helper()
		testkit.ErrorIf(t, err != nil || asked != "/api/v1/"+want, "asked %s, want %s, error %v", asked, want, err)
	}
	got, err := c.Fields(ctx, []string{"GPU-1", "GPU-2"}, []string{"DCGM_*"})
	f("fields?device=GPU-1&device=GPU-2&field=DCGM_%2A", err)
	testkit.Equal(t, "answer", want, got)
	_, err = c.Devices(ctx)
	f("devices", err)
	_, err = c.Health(ctx)
	f("health", err)
	_, err = c.List(ctx)
	f("list", err)
	_, err = c.Events(ctx, at, 10)
	f("events?limit=10&since=2026-11-22T17%3A00%3A00Z", err)
	_, err = c.Samples(ctx, SamplesQuery{Device: "GPU-1", Field: "A", Since: at, Points: 100})
	f("samples?device=GPU-1&field=A&points=100&since=2026-11-22T17%3A00%3A00Z", err)
}

func TestClientPage(t *testing.T) {
	c := exporter(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s\n", r.URL.Path, r.Header.Get("Accept"))
	})
	var page strings.Builder
	err := c.Page(t.Context(), "text/plain", &page)
	testkit.ErrorIf(t, err != nil || page.String() != "/metrics text/plain\n", "Page wrote %q, error %v", &page, err)
	for _, kind := range []string{"text/html; charset=utf-8", "application/json"} {
		site := exporter(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", kind) })
		if err := site.Page(t.Context(), "text/plain", io.Discard); !errors.Is(err, ErrNoPage) || !strings.Contains(err.Error(), "/metrics: this is not a page of metrics") {
			t.Errorf("%s in the place of a page: error %v", kind, err)
		}
	}
}

func TestClientErrors(t *testing.T) {
	answer := func(code int, kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(text)) // the client may have left
		}
	}
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
		is     error
	}{
		{"problem", answer(400, "application/problem+json", `{"title":"Bad Request","status":400,"detail":"since is \"x\": write a time"}`), `since is "x": write a time (400 Bad Request)`, nil},
		{"problem without detail", answer(503, "application/problem+json; charset=utf-8", `{"title":"Service Unavailable"}`), "Service Unavailable (503", nil},
		{"unknown device", answer(404, "application/problem+json", `{"title":"Not Found","detail":"no device \"x\""}`), `no device "x" (404 Not Found)`, fs.ErrNotExist},
		{"older exporter", answer(404, "text/plain; charset=utf-8", "404 page not found\n"), "no JSON API", ErrNoAPI},
		{"login", answer(401, "text/plain", "Unauthorized\n"), "it wants a user name and a password: write http://USER:PASSWORD@127.0.0.1", nil},
		{"busy", answer(503, "text/plain", "too many requests\nmore\n"), "too many requests (503 Service Unavailable)", nil},
		{"page of a proxy", answer(502, "text/html", "<html>"), "it answers 502 Bad Gateway", nil},
		{"web site", answer(200, "text/html", "<html>"), "no JSON API", ErrNoAPI},
		{"no JSON", answer(200, "application/json", "<html>"), "read /api/v1/devices: invalid character '<'", nil},
		{"JSON of another program", answer(200, "application/json", "{}"), "no JSON API", ErrNoAPI},
		{"cut off", answer(200, "application/json", `{"hostname":"n`), "read /api/v1/devices: unexpected EOF", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := exporter(t, tt.answer)
			_, err := c.Devices(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "exporter at http://127.0.0.1:") {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			testkit.ErrorIf(t, tt.is != nil && !errors.Is(err, tt.is), "error %v is not %v", err, tt.is)
		})
	}
}

func TestClientWrongPassword(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer s.Close()
	_, err := newTestClient(t, strings.Replace(s.URL, "://", "://u:secret@", 1)).Devices(t.Context())
	testkit.Has(t, "error", fmt.Sprint(err), "it refuses the user name or the password")
	testkit.Lacks(t, "error", fmt.Sprint(err), "secret")
}

func TestClientEndlessAnswer(t *testing.T) {
	c := exporter(t, func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write([]byte(`{"hostname":"`)); err != nil {
			return
		}
		for text := []byte(strings.Repeat("x", 1<<20)); ; {
			if _, err := w.Write(text); err != nil {
				return
			}
		}
	})
	_, err := c.Devices(t.Context())
	testkit.Has(t, "error", fmt.Sprint(err), "more than 64 MiB")
}

func TestClientNoAnswer(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	_, err := newTestClient(t, closed.URL).Devices(t.Context())
	want := "no exporter answers at " + closed.URL + ": connection refused"
	testkit.ErrorIf(t, !errors.Is(err, ErrNoAnswer) || err.Error() != want, "a closed port: error %v, want %s", err, want)

	left := make(chan struct{})
	defer close(left)
	silent := exporter(t, func(http.ResponseWriter, *http.Request) { <-left })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := silent.Devices(ctx); !errors.Is(err, ErrNoAnswer) || !strings.HasSuffix(err.Error(), "it takes too long") {
		t.Errorf("a silent server: error %v", err)
	}
}

func TestClientTLS(t *testing.T) {
	f := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"time":"2026-11-22T18:00:00Z","hostname":"n"}`))
	})
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	for _, tt := range []struct{ address, want string }{
		{s.URL, "its certificate is not trusted"},
		{strings.Replace(s.URL, "https", "http", 1), "it uses TLS: write https://"},
	} {
		_, err := newTestClient(t, tt.address).Devices(t.Context())
		testkit.Has(t, tt.address, fmt.Sprint(err), tt.want)
	}
	c, err := NewClient(s.URL, ClientOptions{TLS: s.Client().Transport.(*http.Transport).TLSClientConfig})
	testkit.Must(t, err)
	if d, err := c.Devices(t.Context()); err != nil || d.Hostname != "n" {
		t.Errorf("with its certificate: %v, error %v", d, err)
	}
	c.http.CloseIdleConnections()
	plain := httptest.NewServer(f)
	defer plain.Close()
	_, err = newTestClient(t, strings.Replace(plain.URL, "http", "https", 1)).Devices(t.Context())
	testkit.Has(t, "https to a plain server", fmt.Sprint(err), "it does not use TLS")
}
