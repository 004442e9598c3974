package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"

	"warpgauge/internal/testkit"
)

// sock is a connection that only records whether it was closed or cut off.
type sock struct {
	net.Conn
	address     string // the client's, with port
	closed, cut bool
}

func (s *sock) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s.address))
}

func (s *sock) Close() error                { s.closed = true; return nil }
func (s *sock) SetDeadline(time.Time) error { s.cut = true; return nil }

func counterValue(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	must(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

// TestEviction: a connection whose client does nothing goes first, then one that is idle, without a request, or slow, and then one
// whose address was answered lately. An address with many connections is like a slow one.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnections(6, newStats().evicted, zap.NewNop())
		var all []*sock
		open := func(address string, states ...http.ConnState) *sock {
			s := &sock{address: address}
			for _, state := range append([]http.ConnState{http.StateNew}, states...) {
				c.changed(s, state)
			}
			all = append(all, s)
			return s
		}
		goes := func(want *sock) {
			t.Helper()
			for _, s := range all {
				testkit.Equal(t, fmt.Sprintf("connection %d: whether %s goes", len(all), s.address), s == want, s.cut)
				s.cut = false
			}
		}
		answers := []http.ConnState{http.StateActive, http.StateIdle}
		silent, idle := open("192.0.2.1:1"), open("192.0.2.2:1", answers...)
		time.Sleep(scrapedWithin)
		slow := open("192.0.2.3:1", http.StateActive)
		time.Sleep(grace)
		known, next, young := open("192.0.2.4:1", answers...), open("192.0.2.5:1", answers...), open("192.0.2.6:1")
		for i, want := range []*sock{silent, idle, young} {
			open(fmt.Sprintf("192.0.3.%d:1", i), answers...)
			goes(want)
		}
		open("192.0.3.4:1", http.StateActive)
		goes(slow)
		newer := open("192.0.2.4:2") // known by its address
		goes(all[len(all)-2])
		open("192.0.3.5:1", answers...)
		goes(known)
		open("192.0.3.6:1", answers...)
		goes(next)
		c.limit = 20
		var many []*sock
		for i := range fairShare + 1 {
			many = append(many, open(fmt.Sprintf("192.0.2.8:%d", i), answers...))
		}
		c.limit = 15
		open("192.0.3.7:1", answers...)
		goes(many[0])
		if newer.cut {
			t.Error("a known address lost its connection to one with many")
		}
		for _, s := range all {
			c.changed(s, http.StateClosed)
		}
		testkit.Equal(t, "connections that are open at the end", 0, c.count())
		testkit.Equal(t, "evicted", 8.0, counterValue(t, c.evicted))
		c.limit = 3
		asks, _, waits := open("192.0.2.4:3", http.StateActive), open("192.0.2.4:4"), open("192.0.2.5:3", answers...)
		open("192.0.2.5:4", answers...)
		goes(waits) // not the older ones, of which one is being answered and one is about to ask
		for i := range 2 * maxKnown {
			c.answered[addressOf(fmt.Sprintf("10.%d.%d.1:1", i/256, i%256))] = answerTimes{last: time.Now().Add(-time.Second)}
		}
		open("192.0.4.1:1", answers...)
		if c.answered[addressOf(asks.address)] == (answerTimes{}) {
			t.Error("many addresses make a known one unknown")
		}
	})
}

// TestFlood: whatever addresses do that have come later, a connection that asked within the last minute stays. When they have asked
// for long, too, it stays while one of theirs is idle.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnections(8, newStats().evicted, zap.NewNop())
		with := func(s *sock, states ...http.ConnState) *sock {
			for _, state := range states {
				c.changed(s, state)
			}
			return s
		}
		former := with(&sock{address: "192.0.2.1:1"}, http.StateNew)
		busy := [][]http.ConnState{{http.StateNew, http.StateActive, http.StateIdle}, {http.StateNew}, {http.StateNew, http.StateActive}}
		for round := range 40 { // the first eleven are its own
			with(former, http.StateActive, http.StateIdle)
			time.Sleep(scrapedWithin / 2)
			if round == 20 {
				busy = busy[:1]
			}
			for i := range 20 * min(round/11, 1) {
				for _, states := range busy {
					with(&sock{address: fmt.Sprintf("192.0.3.%d:1", i)}, states...)
				}
			}
			if former.cut {
				t.Fatalf("round %d: closed for a newer address", round)
			}
		}
	})
}

// TestHandshakesOfAnAddress: TLS allows fewer connections without a request.
func TestHandshakesOfAnAddress(t *testing.T) {
	c := newConnections(1000, newStats().evicted, zap.NewNop())
	c.useTLS()
	asked := &sock{address: "192.0.2.1:1"}
	c.changed(asked, http.StateNew)
	c.changed(asked, http.StateActive)
	var silent []*sock
	for range maxHandshakes + 2 {
		s := &sock{address: "192.0.2.1:1"}
		c.changed(s, http.StateNew)
		silent = append(silent, s)
	}
	if asked.cut || !silent[0].cut || !silent[1].cut || silent[2].cut {
		t.Errorf("cut off: the one that has asked %v, the first three %v %v %v; want the first two",
			asked.cut, silent[0].cut, silent[1].cut, silent[2].cut)
	}
}

// honest scrapes over a new connection while others attack.
func honest(t *testing.T, what, address string) {
	t.Helper()
	c := dial(t, address)
	defer c.Close()
	start := time.Now()
	send(t, c, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic cHJvbWV0aGV1czpzZWNyZXQ=\r\nConnection: close\r\n\r\n")
	if got := closedByServer(t, c); !strings.HasSuffix(got, textPage) {
		t.Fatalf("%s: answer %q", what, got)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%s: a scrape took %v", what, took)
	}
}

// TestSlowBodies is finding S2 of the audit: no path waits for a body. With basic auth, which reads the body
// before any of our code, slow senders lose their connections first.
func TestSlowBodies(t *testing.T) {
	s, address, _ := start(t, pagesOf(textPage), Options{WebConfigFile: basicAuth(t, bcrypt.MinCost), ReadTimeout: time.Hour, WriteTimeout: time.Hour})
	for i := range 700 {
		send(t, dial(t, address), "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\nx")
		if i%50 == 49 {
			honest(t, fmt.Sprintf("after %d slow bodies", i+1), address)
		}
	}
	if n := s.conns.count(); n > s.conns.slots() {
		t.Errorf("%d connections open, want at most %d", n, s.conns.slots())
	}
}

func TestBodiesAreRefused(t *testing.T) {
	_, address, _ := start(t, pagesOf(textPage), Options{ReadTimeout: time.Hour, WriteTimeout: time.Hour})
	for _, header := range []string{"Content-Length: 1000000000", "Content-Length: 1", "Transfer-Encoding: chunked"} {
		for _, path := range []string{"GET /metrics", "POST /-/reload", "POST /nothing"} {
			c := dial(t, address)
			send(t, c, path+" HTTP/1.1\r\nHost: x\r\n"+header+"\r\n\r\n")
			// The client sends nothing more, but the answer still comes and the connection ends.
			got := closedByServer(t, c)
			if !strings.HasPrefix(got, "HTTP/1.1 413 ") || !strings.Contains(got, "Connection: close\r\n") || !strings.HasSuffix(got, "no path takes a body\n") {
				t.Errorf("%s with %s: answer %q, want 413 on a connection that closes", path, header, got)
			}
		}
	}
	c := dial(t, address)
	send(t, c, "POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	if got := closedByServer(t, c); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("an empty body: %q, want it to count as none", got)
	}
}

// TestPagesBeingSentAreBounded is finding S6 of the audit: each slow reader holds a page from another time.
func TestPagesBeingSentAreBounded(t *testing.T) {
	const pageBytes = 16 << 20
	pages := &numberedPages{size: pageBytes}
	s, address, _ := start(t, pages, Options{WriteTimeout: time.Hour})
	var slow []net.Conn
	for range 8 {
		c := slowReader(t, address)
		slow = append(slow, c)
		s.sending.mu.Lock()
		bytes := s.sending.bytesLocked()
		s.sending.mu.Unlock()
		if bytes > maxSendingBytes {
			t.Fatalf("%d bytes after %d readers, want at most %d", bytes, len(slow), maxSendingBytes)
		}
	}
	for i, c := range slow {
		if i < len(slow)-maxSendingBytes/pageBytes {
			if got := len(closedByServer(t, c)); got >= pageBytes {
				t.Errorf("reader %d got all %d bytes, want it cut off", i, got)
			}
			continue
		}
		if n, err := io.Copy(io.Discard, io.LimitReader(c, pageBytes)); n < pageBytes-1 {
			t.Errorf("reader %d got %d bytes and %v, want the page", i, n, err)
		}
	}
}

// TestOnePageForAllCountsOnce: readers of one page do not cut each other off.
func TestOnePageForAllCountsOnce(t *testing.T) {
	var s sending
	page, other := make([]byte, maxSendingBytes-1), make([]byte, 2)
	var cut []string
	begin := func(name string, page []byte) func() {
		return s.begin(page, func() { cut = append(cut, name) })
	}
	first := begin("first", page)
	second := begin("second", page)
	if len(cut) != 0 {
		t.Errorf("%v were cut off, want none", cut)
	}
	end := begin("other", other)
	testkit.Equal(t, "cut off, all who read the large page, in order", "[first second]", fmt.Sprint(cut))
	first()
	second()
	end()
	huge := begin("huge", make([]byte, 2*maxSendingBytes))
	huge()
	if len(s.scrapes) != 0 || len(cut) != 2 {
		t.Errorf("in the end %d scrapes; %v were cut off", len(s.scrapes), cut)
	}
}

// numberedPages returns another page each time.
type numberedPages struct{ size int }

func (p *numberedPages) Negotiated(string, string) ([]byte, string, bool) {
	return make([]byte, p.size), "text/plain", false
}

func pageSize(t *testing.T, s *Server) int {
	t.Helper()
	n := testkit.Get(strconv.Atoi(ask(s, "HEAD", "/metrics").Header().Get("Content-Length")))(t)
	return n
}
