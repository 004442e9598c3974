package server

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/internal/testkit"
)

// streaming is an API with a stream that lasts until Close.
type streaming struct {
	http.ServeMux
	closed chan struct{}
}

// A stream of this many parts lasts longer than the server's time limits.
const (
	timeLimit = 40 * time.Millisecond
	parts     = 12
)

func newStreaming() *streaming {
	s := &streaming{closed: make(chan struct{})}
	s.HandleFunc("/api/v1/devices", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	s.HandleFunc("/api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_, _ = rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Time{})
		tick := time.NewTicker(timeLimit / 4)
		defer tick.Stop()
		for range parts {
			<-tick.C
			fmt.Fprint(w, "x")
			_ = rc.Flush()
		}
		select {
		case <-r.Context().Done():
		case <-s.closed:
			fmt.Fprint(w, "end")
		}
	})
	s.HandleFunc("/api/v1/", http.NotFound)
	return s
}

func (s *streaming) routes() []Route {
	return []Route{{Pattern: "/api/v1/", Handler: s, Labels: []string{"/api/v1/devices", "/api/v1/stream"}, Close: func() { close(s.closed) }}}
}

// TestAPI: the server counts answers by the API's paths, does not apply its time limits to streams, and ends
// them within the drain when it stops.
func TestAPI(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := Options{Registerer: reg, Routes: newStreaming().routes(), ReadTimeout: timeLimit, WriteTimeout: timeLimit, DrainTimeout: time.Hour}
	_, address, stop := start(t, pagesOf(textPage), o)
	c := client(t)
	for _, path := range []string{"/api/v1/devices", "/api/v1/nothing"} {
		get(t, c, "http://"+address+path)
	}
	conn := dial(t, address)
	send(t, conn, "GET /api/v1/stream HTTP/1.0\r\n\r\n")
	begin := make([]byte, 0, 4096)
	for !bytes.HasSuffix(begin, bytes.Repeat([]byte("x"), parts)) {
		n, err := conn.Read(begin[len(begin):cap(begin)])
		if err != nil {
			t.Fatalf("the stream ends after %q: %v", begin, err)
		}
		begin = begin[:len(begin)+n]
	}
	must(t, stop())
	testkit.Equal(t, "end of the stream", "end", closedByServer(t, conn))
	got := gather(t, reg)
	for series, want := range map[string]float64{
		`warpgauge_http_requests_total code=200 path=/api/v1/devices`: 1,
		`warpgauge_http_requests_total code=200 path=/api/v1/stream`:  1,
		`warpgauge_http_requests_total code=404 path=other`:           1,
	} {
		testkit.Equal(t, series, want, got[series])
	}
}
