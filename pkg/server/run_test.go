package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/internal/testkit"
)

func TestHeaderTimeoutEndsStalledConnections(t *testing.T) {
	_, address, _ := start(t, pagesOf(textPage), Options{ReadTimeout: 50 * time.Millisecond})
	silent, half := dial(t, address), dial(t, address)
	send(t, half, "GET /metrics HTTP/1.1\r\nHost: x\r\n")
	closedByServer(t, silent)
	closedByServer(t, half)
}

// slowReader asks for the page and reads one byte of it.
func slowReader(t *testing.T, address string) net.Conn {
	t.Helper()
	c := dial(t, address)
	send(t, c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWriteTimeoutEndsSlowReaders(t *testing.T) {
	s, address, _ := start(t, bigPage(), Options{WriteTimeout: 50 * time.Millisecond})
	slow := dial(t, address)
	send(t, slow, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	for counterValue(t, s.stats.aborted) == 0 {
		time.Sleep(time.Millisecond)
	}
	if got, all := len(closedByServer(t, slow)), pageSize(t, s); got >= all {
		t.Errorf("the slow reader got all %d bytes", all)
	}
}

func TestStopLetsRequestsFinish(t *testing.T) {
	pages := &blockingPages{pagesOf(textPage), make(chan struct{}), make(chan struct{})}
	reload := make(chan context.Context)
	s, address, stop := start(t, pages, Options{DrainTimeout: time.Hour, Reload: true, Desk: testDesk(func(ctx context.Context, _ string) error {
		reload <- ctx
		<-pages.release
		return ctx.Err()
	})})
	c := client(t)
	bodies := make(chan string)
	go func() { bodies <- get(t, c, "http://"+address+"/metrics").body }()
	<-pages.entered
	reloaded := make(chan answer)
	go func() { reloaded <- post(t, c, "http://"+address+"/-/reload") }()
	ctx := <-reload
	// Neither connection may delay the stop.
	stalled := dial(t, address)
	send(t, stalled, "GET /metrics HTTP/1.1\r\n")
	dial(t, address)

	stopped := make(chan error)
	go func() { stopped <- stop() }()
	closedByServer(t, stalled)
	if got := ask(s, "GET", "/readyz"); got.Code != 503 || got.Body.String() != "shutting down\n" {
		t.Errorf("/readyz while stopping = %d %q", got.Code, got.Body)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("a new connection was taken while stopping")
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped during a request: %v", err)
	default:
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("the reload's context ended with the stop: %v", err)
	}
	close(pages.release)
	testkit.Equal(t, "page of the request under way", textPage, <-bodies)
	if got := <-reloaded; got.code != 200 {
		t.Errorf("reload under way = %d %q, want 200", got.code, got.body)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestStopClosesWhatDoesNotFinish(t *testing.T) {
	s, address, stop := start(t, bigPage(), Options{DrainTimeout: 50 * time.Millisecond})
	slow := slowReader(t, address)
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := len(closedByServer(t, slow)); got >= pageSize(t, s) {
		t.Errorf("the slow reader got all %d bytes after the stop", got)
	}
}

func TestReloadOutlivesItsClient(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan error)
	_, address, stop := start(t, nil, Options{
		DrainTimeout: 10 * time.Millisecond, Reload: true,
		Desk: testDesk(func(ctx context.Context, _ string) error {
			entered <- struct{}{}
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}),
	})
	c := dial(t, address)
	send(t, c, "POST /-/reload HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	c.Close()
	select {
	case err := <-ended:
		t.Fatalf("reload was ended with its client: %v", err)
	case <-time.After(50 * time.Millisecond): // the server has long seen the end of the connection
	}
	go stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("reload ended with %v, want the server's end", err)
	}
}

func TestReloadOutlivesTheWriteTimeout(t *testing.T) {
	const timeout = 50 * time.Millisecond
	_, address, _ := start(t, nil, Options{WriteTimeout: timeout, Reload: true, Desk: testDesk(func(context.Context, string) error {
		time.Sleep(3 * timeout)
		return nil
	})})
	if got := post(t, client(t), "http://"+address+"/-/reload"); got.code != http.StatusOK || got.body != "reloaded\n" {
		t.Errorf("reload = %d %q, want 200", got.code, got.body)
	}
}

func TestListenErrors(t *testing.T) {
	taken := testkit.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	f := func(address string, is error, want string) {
		t.Helper()
		s := New(nil, Options{Address: address})
		err := s.Run(context.Background())
		if err == nil || is != nil && !errors.Is(err, is) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Run on %q = %v, want %q", address, err, want)
		}
	}
	a := taken.Addr().String()
	f(a, syscall.EADDRINUSE, "listen on "+a+": address already in use; another exporter (dcgm-exporter?) may be running, choose another with --address")
	f("192.0.2.1:0", syscall.EADDRNOTAVAIL, "listen on 192.0.2.1:0: cannot assign requested address; this machine has no such address")
	f("9400", nil, "listen on 9400: ")
	f(":port", nil, "listen on :port: ")
	if got := listenError(":80", &net.OpError{Err: os.NewSyscallError("bind", syscall.EACCES)}).Error(); !strings.HasPrefix(got, "listen on :80: permission denied; ports below 1024") {
		t.Errorf("no permission: %q", got)
	}
}

func TestMetricsOfTheServer(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	_, address, _ := start(t, pagesOf(textPage), Options{Registerer: reg})
	c := client(t)
	for _, path := range []string{"/metrics", "/metrics", "/livez", "/nothing", "/debug/pprof/heap"} {
		get(t, c, "http://"+address+path)
	}
	got := gather(t, reg)
	for series, want := range map[string]float64{
		`warpgauge_http_requests_total code=200 path=/metrics`: 2,
		`warpgauge_http_requests_total code=503 path=/metrics`: 0,
		`warpgauge_http_requests_total code=200 path=/livez`:   1,
		`warpgauge_http_requests_total code=404 path=other`:    2,
		`warpgauge_scrape_duration_seconds`:                    2,
		`warpgauge_scrapes_aborted_total`:                      0,
		`warpgauge_http_connections`:                           1,
		`warpgauge_http_connections_evicted_total`:             0,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", series, v, ok, want)
		}
	}
}

// gather returns the value of each series, or a histogram's count.
func gather(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families := testkit.Get(reg.Gather())(t)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

// TestSystemdSocket starts this test binary again with a listening socket as descriptor 3, as systemd does.
func TestSystemdSocket(t *testing.T) {
	if os.Getenv("WARPGAUGE_TEST_SOCKET") != "" {
		serveSystemdSocket(t)
		return
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer l.Close()
	file := testkit.Get(l.File())(t)
	defer file.Close()
	exe := testkit.Get(filepath.Abs(os.Args[0]))(t)
	// systemd names the process that gets the sockets; exec keeps the shell's process id.
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run='^TestSystemdSocket$'`, exe)
	cmd.Env = append(os.Environ(), "WARPGAUGE_TEST_SOCKET=1", "LISTEN_FDS=1")
	cmd.ExtraFiles = []*os.File{file}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	body := get(t, client(t), "http://"+l.Addr().String()+"/metrics").body
	testkit.Equal(t, "body", textPage, body)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
}

// serveSystemdSocket answers one scrape on the socket that was passed.
func serveSystemdSocket(t *testing.T) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	s := New(pagesOf(textPage), Options{SystemdSocket: true, Registerer: reg})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for gather(t, reg)[`warpgauge_http_requests_total code=200 path=/metrics`] == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	})
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	cancel()
	wg.Wait()
}

// TestUsersOfASocket: the address of a Unix socket's client is its user.
func TestUsersOfASocket(t *testing.T) {
	l := testkit.Get(net.Listen("unix", filepath.Join(testkit.ShortDir(t), "s")))(t)
	defer l.Close()
	client := testkit.Get(net.Dial("unix", l.Addr().String()))(t)
	defer client.Close()
	c := testkit.Get(byUser{l.(*net.UnixListener)}.Accept())(t)
	defer c.Close()
	testkit.Equal(t, "address", fmt.Sprintf("uid:%d", os.Getuid()), c.RemoteAddr().String())
	seen := map[netip.Prefix]string{}
	for _, remote := range []string{"uid:0", "uid:1000", "uid:65534", "@", "10.0.0.1:1", "[100::1]:1"} {
		if other, twice := seen[addressOf(remote)]; twice {
			t.Errorf("%s and %s count as one", remote, other)
		}
		seen[addressOf(remote)] = remote
	}
}
