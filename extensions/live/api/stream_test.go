package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/server"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// reader reads a feed at an interval, without HTTP.
type reader struct {
	t        *testing.T
	f        *feed
	part     []byte // the next part
	interval time.Duration
}

func join(t *testing.T, a *API, text string, interval time.Duration) *reader {
	t.Helper()
	values, err := url.ParseQuery(text)
	must(t, err)
	f, part, err := newFeed(a, &query{values})
	must(t, err)
	return &reader{t, f, part, interval}
}

// next returns the events of the next part, checked against openapi.json.
func (r *reader) next() (events []string) {
	r.t.Helper()
	for len(r.part) == 0 {
		time.Sleep(r.interval)
		var err error
		r.part, _, err = r.f.next()
		must(r.t, err)
	}
	part := r.part
	r.part = nil
	for text := range strings.SplitSeq(strings.TrimSuffix(string(part), "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(strings.TrimPrefix(text, "event: "), "\ndata: ")
		testkit.FatalIf(r.t, !ok || strings.Contains(data, "\n"), "no event: %q", text)
		checkEvent(r.t, name, data)
		events = append(events, name+" "+data)
	}
	return events
}

// checkEvent checks an event's data against its schema in openapi.json.
func checkEvent(t *testing.T, name, data string) {
	t.Helper()
	of := map[string]string{"columns": "StreamColumns", "rows": "StreamRows", "devices": "Device", "health": "DeviceHealth", "event": "Event", "problem": "Problem"}[name]
	checkJSON(t, "event "+name+" "+data, "/components/schemas/"+of, strings.NewReader(data))
}

func (r *reader) want(want ...string) {
	r.t.Helper()
	got := r.next()
	testkit.ErrorIf(r.t, !slices.EqualFunc(got, want, strings.HasPrefix), "got events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 1)
		w.clock = time.Now
		a := New(w.options)
		id := w.gpus[0].Devices[0].ID
		r := join(t, a, "device="+id+"&field=DCGM_FI_DEV_GPU_TEMP&field=DCGM_FI_DEV_SM_*", 250*time.Millisecond)
		r.want(fmt.Sprintf(`columns {"columns":[{"device":%q,"field":"DCGM_FI_DEV_GPU_TEMP","unit":"celsius"},{"device":%q,"field":"DCGM_FI_DEV_SM_CLOCK_HERTZ","unit":"Hz"}]}`, id, id))

		time.Sleep(100 * time.Millisecond)
		w.sample()
		first := time.Now().UnixMilli()
		time.Sleep(100 * time.Millisecond)
		w.gpus[0].Row[0] = math.NaN()
		w.sample()
		second := time.Now().UnixMilli()
		r.want(fmt.Sprintf(`rows {"rows":[{"t":%d,"first":0,"v":[60,1980000000]},{"t":%d,"first":0,"v":[null,1980000000]}]}`, first, second))

		// One row without a reading of the device, one row with a value that JSON lacks.
		w.gpus[0].Row[0] = 61
		w.gpus[0].Ring.Append(time.Now().UnixNano(), w.gpus[0].Stamps, w.gpus[0].Row)
		w.gpus[0].Row[0] = math.Inf(1)
		time.Sleep(time.Millisecond)
		w.sample()
		got := strings.Join(r.next(), "\n")
		testkit.Times(t, 1, got, `"v":[null,null]`)
		testkit.Times(t, 1, got, `"v":[null,1980000000]`)

		// The stream omits events of other devices but sends events of the node.
		w.gpus[0].Row[0] = 62
		w.bus.Publish(events.Event{Kind: events.XID, Device: &w.gpus[1].Devices[0], Code: 13, Time: time.Now(), Source: "nvml"})
		w.bus.Publish(events.Event{Kind: events.XID, Device: &w.gpus[0].Devices[0], Code: 79, Time: time.Now(), Source: "nvml"})
		w.bus.Publish(events.Event{Kind: events.Reload, Text: "reloaded"})
		if got := r.next(); len(got) != 2 || !strings.Contains(got[0], `"code":79`) || !strings.Contains(got[1], "reloaded") {
			t.Errorf("got events %q", got)
		}
		w.set(0, session.Stalled, session.CauseHung, "a call hangs")
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.next(); len(got) != 2 || !strings.HasPrefix(got[0], "devices {") || !strings.Contains(got[0], `"state":"stalled"`) || !strings.HasPrefix(got[1], "event {") {
			t.Errorf("got events %q", got)
		}
	})
}

// TestStreamOfHealth: a changed verdict is sent once and in full, for selected devices only.
func TestStreamOfHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 1)
		w.clock = time.Now
		var board events.Board
		verdicts := []events.Verdict{{Device: w.gpus[0].Devices[0], Action: events.ActionNone}, {Device: w.gpus[1].Devices[0], Action: events.ActionNone}}
		store := func(version uint64, state events.State) {
			now := slices.Clone(verdicts)
			for i := range now {
				now[i].State = state
			}
			board.Store(&events.Snapshot{Version: version, Verdicts: now})
		}
		store(1, events.OK)
		w.options.Verdicts = &board
		r := join(t, New(w.options), "device="+w.gpus[0].Devices[0].ID+"&field=DCGM_FI_DEV_GPU_TEMP", time.Second)
		r.want("columns")
		verdicts[0].Reason, verdicts[0].Action = "xid_79", events.ActionReboot
		verdicts[0].Conditions = []events.Condition{{Reason: "xid_79", State: events.Failed, Action: events.ActionReboot, Evidence: []events.Evidence{{Source: "nvml", Text: "XID 79"}}}}
		store(2, events.Failed)
		got := r.next()
		if len(got) != 2 || !strings.HasPrefix(got[0], "devices {") || !strings.Contains(got[0], `"word":"failed"`) || !strings.HasPrefix(got[1], "health {") {
			t.Fatalf("got events %q", got)
		}
		testkit.Has(t, "event", got[1], `"state":"failed"`, `"action":"reboot"`, `"source":"nvml"`)
		store(3, events.Failed) // this device's verdict does not change
		w.bus.Publish(events.Event{Kind: events.Reload, Text: "reloaded"})
		r.want("event {")
	})
}

// TestStreamFollowsTheSessions: a new session sends columns only if they changed, and skips rows
// that the previous source had.
func TestStreamFollowsTheSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0)
		w.clock = time.Now
		a := New(w.options)
		r := join(t, a, "field=DCGM_FI_DEV_GPU_TEMP", 100*time.Millisecond)
		r.want("columns ")
		w.sample()
		sampled := time.Now()
		r.want(`rows {"rows":[{`)

		next := newGPU(w.list, 0, 0)
		next.Row[0] = 70
		next.Tick(sampled) // the previous session had this row
		w.gpus[0] = next
		w.board.Store(&view.View{Version: 2, Sources: []*view.Source{next.Source}})
		w.sample()
		got := strings.Join(r.next(), "")
		testkit.ErrorIf(t, strings.Count(got, `"v"`) != 1 || !strings.Contains(got, `"v":[70]`), "after another session: %s", got)

		more := newGPU(listOf(t, testList+"DCGM_FI_DEV_MEM_CLOCK, gauge, Clock.\n"), 0, 0)
		more.Columns = append(more.Columns, collector.Column{Field: 150, Labels: []collector.Label{{Name: "sensor", Value: "2"}}})
		more.Row = append(more.Row, 50)
		more.Ring = ring.Make(64, 1, len(more.Columns))
		w.gpus[0] = more
		w.board.Store(&view.View{Version: 3, Sources: []*view.Source{more.Source}})
		time.Sleep(time.Millisecond)
		w.sample()
		r.want(`columns {"columns":[{"device":"GPU-00000000-7c2f-0e33-89ac-dedf8d7bb611","field":"DCGM_FI_DEV_GPU_TEMP","unit":"celsius"},{"device":"GPU-00000000-7c2f-0e33-89ac-dedf8d7bb611","field":"DCGM_FI_DEV_GPU_TEMP","unit":"celsius","labels":{"sensor":"2"}}]}`,
			"rows ")
	})
}

func TestAStreamWithoutRowsIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(newWorld(t, 1, 0).options)
		got := httptest.NewRecorder()
		go a.ServeHTTP(got, httptest.NewRequest(http.MethodGet, Prefix+"stream", nil))
		time.Sleep(2*heartbeat + time.Second)
		a.Close()
		synctest.Wait()
		if text := got.Body.String(); strings.Count(text, "\n\n:\n\n") != 1 || strings.Count(text, ":\n\n:\n\n") != 1 || !strings.Contains(text, "event: problem\ndata: ") {
			t.Errorf("want columns, two comments and a problem, got %s", text)
		}
		testkit.Equal(t, "streams counted as open after Close", int64(0), a.streams.open.Load())
		testkit.Equal(t, "status of a stream after Close", http.StatusServiceUnavailable, get(t, a, Prefix+"stream").Code)
	})
}

// TestStreamsThatGrow: devices that come later count as memory, too.
func TestStreamsThatGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		both := w.board.Load()
		w.board.Store(&view.View{Version: 2, Sources: both.Sources[:1]})
		a, got := New(w.options), httptest.NewRecorder()
		go a.ServeHTTP(got, httptest.NewRequest(http.MethodGet, Prefix+"stream", nil))
		synctest.Wait()
		before := a.streams.held.Load()
		a.streams.held.Store(maxHeld)
		w.board.Store(both)
		time.Sleep(2 * defaultInterval)
		synctest.Wait()
		testkit.Has(t, "stream", got.Body.String(), "the streams need too much memory")
		testkit.Equal(t, "bytes counted after its end", maxHeld-before, a.streams.held.Load())
	})
}

func TestBusy(t *testing.T) {
	a := New(newWorld(t, 1, 0).options)
	a.waiting.Store(maxWaiting)
	got := get(t, a, Prefix+"devices")
	testkit.ErrorIf(t, got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "", "with %d waiting it answers %d", maxWaiting, got.Code)
	a.waiting.Store(0)
	a.sending.Store(maxSending)
	testkit.Equal(t, fmt.Sprintf("status with %d bytes under way", maxSending), http.StatusServiceUnavailable, get(t, a, Prefix+"devices").Code)
	a.sending.Store(0)
	a.streams.open.Add(maxStreams)
	if got := get(t, a, Prefix+"stream"); got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" {
		t.Errorf("stream %d is answered %d", maxStreams+1, got.Code)
	}
	testkit.Equal(t, "streams counted after a refusal", int64(maxStreams), a.streams.open.Load())
	a.streams.open.Store(0)
	a.streams.held.Store(maxHeld)
	if got := get(t, a, Prefix+"stream"); got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" {
		t.Errorf("with %d bytes held a stream is answered %d", maxHeld, got.Code)
	}
}

// TestStreamsOverHTTP runs streams longer than the server's time limits, clients that leave, and clients that never read,
// TestAnonymousEvents: events whose text names pods or jobs are for the full page only.
func TestAnonymousEvents(t *testing.T) {
	l := NewLog()
	l.Add(&events.Event{Kind: events.Idle, Text: "job 7 has not used its GPU"})
	testkit.Equal(t, "events", 0, len(l.kept))
	l.People = true
	l.Add(&events.Event{Kind: events.Idle, Text: "job 7 has not used its GPU"})
	testkit.Equal(t, "events", 1, len(l.kept))
}

// while another client queries everything else. The server's end ends the streams. Run it with the race detector.
func TestStreamsOverHTTP(t *testing.T) {
	t.Run("1.1", func(t *testing.T) { streamsOverHTTP(t, false) })
	t.Run("2", func(t *testing.T) { streamsOverHTTP(t, true) })
}

func streamsOverHTTP(t *testing.T, two bool) {
	w := newWorld(t, 8, 0)
	w.clock = time.Now
	a := New(w.options)
	s := server.New(noPages{}, server.Options{Routes: []server.Route{{Pattern: Prefix, Handler: a, Labels: a.Paths(), Close: a.Close}}})
	h := httptest.NewUnstartedServer(s.Handler())
	h.Config.ReadTimeout, h.Config.WriteTimeout = 400*time.Millisecond, 400*time.Millisecond
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	var trust *tls.Config
	if h.EnableHTTP2 = two; two {
		h.StartTLS()
		trust = &tls.Config{RootCAs: x509.NewCertPool()}
		trust.RootCAs.AddCert(h.Certificate())
	} else {
		h.Start()
	}
	defer h.Close()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var background, clients sync.WaitGroup
	background.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				for _, f := range w.gpus {
					f.Tick(now)
				}
				w.log.Add(&events.Event{Kind: events.Reload, Text: "x"})
			}
		}
	})
	const dead = 4
	for range dead { // send a request and never read
		conn := testkit.Get(net.Dial("tcp", h.Listener.Addr().String()))(t)
		defer func() { _ = conn.Close() }()
		if two {
			conn = tls.Client(conn, &tls.Config{RootCAs: trust.RootCAs, ServerName: "example.com"})
		}
		fmt.Fprintf(conn, "GET %sstream?interval=0.1 HTTP/1.1\r\nHost: x\r\n\r\n", Prefix)
	}
	for i := range 12 {
		clients.Go(func() {
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}}
			defer c.CloseIdleConnections()
			address := h.URL + Prefix + "stream?interval=0.1" + []string{"", "&field=DCGM_FI_DEV_GPU_*", "&field=*POWER*"}[i%3]
			rows, columns := 0, 0
			read := func() error {
				resp, err := c.Get(address)
				if err != nil {
					return err
				}
				defer func() { _ = resp.Body.Close() }() // the body was only read
				lines, event := bufio.NewScanner(resp.Body), ""
				for lines.Buffer(nil, 16<<20); lines.Scan() && rows < 6+i%3; { // 100 ms intervals, far beyond the limits
					name, data, _ := strings.Cut(lines.Text(), ": ")
					switch {
					case name == "event":
						event = data
					case name == "data" && event == "columns":
						var e apiv1.StreamColumns
						err = errors.Join(err, json.Unmarshal([]byte(data), &e))
						columns = len(e.Columns)
					case name == "data" && event == "rows":
						var e apiv1.StreamRows
						err = errors.Join(err, json.Unmarshal([]byte(data), &e))
						for _, r := range e.Rows {
							testkit.ErrorIf(t, r.First < 0 || r.First+len(r.Values) > columns, "values %d to %d of %d columns", r.First, r.First+len(r.Values), columns)
						}
						rows++
					}
				}
				return errors.Join(err, lines.Err())
			}
			err := read()
			var unanswered *url.Error
			for errors.As(err, &unanswered) && columns == 0 { // on a busy machine the connection can take longer than the server waits
				err = read()
			}
			testkit.ErrorIf(t, err != nil || rows < 6, "client %d: %d events of rows: %v", i, rows, err)
		})
	}
	clients.Go(func() {
		for range 30 {
			for _, path := range []string{"devices", "fields", "events?limit=5", "samples?device=" + w.gpus[0].Devices[0].ID + "&field=DCGM_FI_DEV_GPU_TEMP"} {
				get(t, a, Prefix+path)
			}
		}
	})
	clients.Wait()
	eventually.True(t, "only those that never read are left", func() bool {
		return a.streams.open.Load() == dead
	})
	a.Close()
	eventually.True(t, "none is left", func() bool {
		return a.streams.open.Load() == 0
	})
	cancel()
	background.Wait()
}

type noPages struct{}

func (noPages) Negotiated(string, string) ([]byte, string, bool) {
	return []byte("x 1\n"), "text/plain", false
}

func TestEventsAreBounded(t *testing.T) {
	l := NewLog()
	d := &collector.Device{ID: "GPU-0", GPU: "0", Level: field.GPU}
	l.Add(&events.Event{Kind: events.XID, Device: d, Code: 79, Time: start, Source: "nvml"})
	for i := range 5 * maxEvents {
		l.Add(&events.Event{Kind: events.Failover, Text: fmt.Sprint(i)})
	}
	all := l.after(0)
	if len(all) > maxEvents+1 || all[0].Kind != string(events.XID) || all[len(all)-1].Text != fmt.Sprint(5*maxEvents-1) {
		t.Errorf("%d events, the first %v, the last %v", len(all), all[0], all[len(all)-1])
	}
	again := l.after(l.Last() - 3)
	testkit.ErrorIf(t, len(again) != 3 || again[2].number != l.Last(), "after the third last: %v", again)
	l.Add(&events.Event{Kind: events.Reload, Text: strings.Repeat("é", maxEventText)})
	got := l.after(l.Last() - 1)[0]
	testkit.ErrorIf(t, len(got.Text) > maxEventText || !json.Valid(encode(got.Event)), "a text of %d bytes", len(got.Text))
}

func TestClockEventsThatFlap(t *testing.T) {
	l := NewLog()
	d := &collector.Device{ID: "GPU-0", GPU: "0", Level: field.GPU}
	for i := range 250 { // 25 s
		l.Add(&events.Event{Kind: events.Clock, Device: d, Reason: "power_cap", Time: start.Add(time.Duration(i) * 100 * time.Millisecond)})
		l.Add(&events.Event{Kind: events.Clock, Device: d, Reason: "gpu_idle", Time: start})
	}
	testkit.Equal(t, "events in 25 s", 3, len(l.after(0)))
}
