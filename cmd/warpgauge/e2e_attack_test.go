package main_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
)

// TestE2EAttack attacks the binary over loopback in several ways, while honest clients scrape from other addresses. At most 1 %
// of their scrapes may fail, in make attack none, and the exporter's memory stays within a limit. WARPGAUGE_ATTACK_SECONDS is
// the length of each attack; make attack prints the results.
func TestE2EAttack(t *testing.T) {
	const afterRestart, acrossRestart, behindOne = "the same after a restart", "300 addresses, across a restart", "the same, honest ones behind one address"
	exe := build(t)
	seconds := 2
	if text := os.Getenv("WARPGAUGE_ATTACK_SECONDS"); text != "" {
		n := testkit.Get(strconv.Atoi(text))(t)
		seconds = n
	}
	hash := testkit.Get(bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.DefaultCost))(t)
	dir := t.TempDir()
	writeCertificate(t, dir)
	write(t, filepath.Join(dir, "users.yml"), "basic_auth_users: {prometheus: "+string(hash)+"}\n")
	const withTLS = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
	write(t, filepath.Join(dir, "tls.yml"), withTLS)
	write(t, filepath.Join(dir, "changes.yml"), withTLS)
	write(t, filepath.Join(dir, "both.yml"), withTLS+"basic_auth_users: {prometheus: "+string(hash)+"}\n")
	web := func(name string) []string { return []string{"--web-config-file=" + filepath.Join(dir, name+".yml")} }
	users, encrypted := web("users"), web("tls")
	wrongOverTLS := func(ctx context.Context, c net.Conn) {
		wrongPasswords(ctx, tls.Client(c, &tls.Config{InsecureSkipVerify: true}))
	}
	list := filepath.Join(dir, "counters.csv")
	write(t, list, sharedLines)
	odd := []string{"DELETE /metrics", "TRACE /", "POST /-/reload", "GET /" + strings.Repeat("a", 5000), "CONNECT x:1", "OPTIONS *", "GET /debug/pprof/", "BREW /x"}
	table := []string{"| attack | scrapes | lost | p50 | p99 | memory at most | recovery | a former version |", "|---|---|---|---|---|---|---|---|"} // of docs/limits.md
	for _, attack := range []struct {
		name   string
		args   []string
		limit  int // of the exporter's memory, in MiB
		attack func(ctx context.Context, address string)
		before string // what a former version lost, in a test of its own
	}{
		{"logins: wrong passwords, abandoned", users, 300, together(clients(600, wrongPasswords), clients(1, func(ctx context.Context, c net.Conn) {
			_, _ = io.WriteString(c, login("wrong"))
			_ = c.Close()
			pause(ctx, 10*time.Millisecond) // 100 a second
		})), ""},
		{"600 slow headers, 3000 slow bodies", nil, 300, together(clients(600, trickle("GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")),
			clients(3000, trickle("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n"))), ""},
		{"600 slow readers of 200 GPUs", []string{"--fake-devices=200"}, 500, clients(600, slowReader), ""},
		{"TLS: stalled, abandoned, streams reset", encrypted, 300, together(clients(600, trickle("\x16\x03\x01")), clients(8, resetStreams), clients(8, func(ctx context.Context, c net.Conn) {
			_ = tls.Client(&goneAfterFirstFlight{Conn: c}, &tls.Config{InsecureSkipVerify: true}).Handshake() // fails by design
			_ = c.Close()
			pause(ctx, 40*time.Millisecond) // 200 a second
		})), ""},
		{"floods: connections, scrapes, other paths", nil, 300, together(
			clients(2000, func(ctx context.Context, _ net.Conn) { pause(ctx, 100*time.Millisecond) }),
			clients(16, func(_ context.Context, c net.Conn) { requests(c, "GET /metrics") }),
			clients(16, func(_ context.Context, c net.Conn) { requests(c, odd[rand.IntN(len(odd))]) })), ""},
		{"2000 addresses, silent", nil, 300, apart(2000, func(ctx context.Context, c net.Conn) { _, _ = c.Read(make([]byte, 1)) }), "88 %"},
		{"1200 addresses, slow readers of 200 GPUs", []string{"--fake-devices=200"}, 500, apart(1200, slowReader), ""},
		{behindOne, []string{"--fake-devices=200"}, 500, apart(1200, slowReader), ""},
		{"600 addresses, TLS that stalls", encrypted, 300, apart(600, trickle("\x16\x03\x01")), "52 %"},
		{"600 addresses that ask each second", nil, 300, apart(600, asking("/metrics", time.Second)), ""},
		{"2000 addresses that ask each 3 s", nil, 300, apart(2000, asking("/metrics", 3*time.Second)), ""},
		{"128 streams of 200 GPUs", []string{"--fake-devices=200"}, 500, clients(128, asking("/api/v1/stream", time.Second)), ""},
		{"128 streams of every field, not read", []string{"--fake-devices=200"}, 350, clients(128, unread("/api/v1/stream?field=*&interval=0.1")), "1,290 MiB"},
		{"64 addresses, wrong passwords", users, 300, apart(64, wrongPasswords), ""},
		{afterRestart, users, 300, apart(64, wrongPasswords), "48 to 99 %"},
		{acrossRestart, append(users, "--health-directory="+filepath.Join(dir, "health")), 300, apart(300, wrongPasswords), "67 %, at first"},
		{"64 addresses, wrong passwords, TLS", web("both"), 300, apart(64, wrongOverTLS), "87 %, of 600"},
		{"lists that are FIFOs, devices, 10 GB", []string{"--enable-reload-endpoint", "-f", list}, 300, hostileLists(list), ""},
		{"web configurations like that, TLS", web("changes"), 300, hostileLists(filepath.Join(dir, "changes.yml")), "3,760 MB"},
	} {
		t.Run(strings.ReplaceAll(attack.name, " ", "_"), func(t *testing.T) {
			e := serve(t, exe, attack.args...)
			if attack.name == acrossRestart {
				newHonest(t, e, 1).once(t.Context())
				e.ends(t, syscall.SIGTERM)
				e = serve(t, exe, attack.args...)
			}
			h, patient := newHonest(t, e, 1), make([]*honest, 20)
			late := attack.name == afterRestart || attack.name == acrossRestart
			if !late {
				h.once(t.Context()) // from now on its password is cached
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
			defer cancel()
			var attackers sync.WaitGroup
			_, address, _ := strings.Cut(e.url, "://")
			for i := range patient {
				from := byte(i + 10)
				if attack.name == behindOne {
					from = 1
				}
				patient[i] = newHonest(t, e, from)
				if attack.args == nil || attack.name == behindOne { // a login waits for others
					patient[i].once(t.Context()) // from now on its address is known
					attackers.Go(func() {
						for ; ctx.Err() == nil; pause(ctx, time.Second) {
							patient[i].once(t.Context())
						}
					})
				}
			}
			attackers.Go(func() { attack.attack(ctx, address) })
			if late {
				time.Sleep(300 * time.Millisecond) // they come first
			}
			for ctx.Err() == nil {
				h.once(t.Context())
				time.Sleep(10 * time.Millisecond) // the honest scraper's interval
			}
			attackers.Wait()
			ended := time.Now()
			for !h.once(t.Context()) {
				if time.Since(ended) > time.Minute {
					t.Fatal("no scrape succeeds after the attack")
				}
			}
			recovery, memory, ms := time.Since(ended), mebibytes(t, e.PID(), "VmHWM"), func(d time.Duration) float64 { return float64(d) / 1e6 }
			for _, p := range patient {
				h.lost, h.last, h.took = h.lost+p.lost, errors.Join(h.last, p.last), append(h.took, p.took...)
			}
			slices.Sort(h.took)
			table = append(table, fmt.Sprintf("| %s | %d | %d | %.1f ms | %.1f ms | %d MiB | %.1f ms | %s |", attack.name, len(h.took), h.lost,
				ms(h.took[len(h.took)/2]), ms(h.took[len(h.took)*99/100]), memory, ms(recovery), attack.before))
			if h.lost > 0 && (seconds > 2 || h.lost*100 > len(h.took)) {
				t.Errorf("%d of %d scrapes lost, want none, and in two seconds at most one in a hundred; the last: %v", h.lost, len(h.took), h.last)
			}
			testkit.ErrorIf(t, !testkit.Race && memory > attack.limit, "the exporter took %d MiB, want at most %d", memory, attack.limit)
		})
	}
	if t.Log("\n" + strings.Join(table, "\n")); seconds > 2 {
		golden.Fill(t, "../../docs/limits.md", map[string]string{"attack": strings.Join(table, "\n") + "\n"})
	}
}

// hostileLists replaces the list with invalid files and requests reloads.
func hostileLists(path string) func(ctx context.Context, address string) {
	return func(ctx context.Context, address string) {
		for i := 0; ctx.Err() == nil; i++ {
			if err := errors.Join(os.RemoveAll(path), hostile[i%len(hostile)].make(path)); err != nil {
				panic(err) // in a directory of the test
			}
			_, _ = try(ctx, http.DefaultClient, http.MethodPost, "http://"+address+"/-/reload") // fails by design
		}
	}
}

// writeCertificate writes cert.pem and key.pem, which no client trusts.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	s.Close()
	private := testkit.Get(x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey))(t)
	write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// honest scrapes from an address, alternating between a kept and a new connection.
type honest struct {
	clients [2]http.Client
	url     string
	took    []time.Duration // of all scrapes, failed ones included
	lost    int
	last    error
}

func newHonest(t *testing.T, e *exporter, from byte) *honest {
	t.Helper()
	h := &honest{url: e.url + "/metrics"}
	for i := range h.clients {
		tr := &http.Transport{
			DisableKeepAlives: i == 1,
			DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}).DialContext,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the test's own certificate
		}
		t.Cleanup(tr.CloseIdleConnections)
		h.clients[i] = http.Client{Transport: tr, Timeout: 5 * time.Second}
	}
	return h
}

func (h *honest) once(ctx context.Context) (ok bool) {
	begin := time.Now()
	a, err := try(ctx, &h.clients[len(h.took)%2], http.MethodGet, h.url, "Authorization", basic("secret"))
	h.took = append(h.took, time.Since(begin))
	if err == nil && (a.code != http.StatusOK || len(a.body) == 0) {
		err = fmt.Errorf("status %d, %d bytes", a.code, len(a.body))
	}
	if err != nil {
		h.lost++
		h.last = err
	}
	return err == nil
}

func basic(password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("prometheus:"+password))
}

func login(password string) string {
	return "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: " + basic(password) + "\r\n\r\n"
}

// connect returns a connection from an attacker's address. The connection ends with ctx.
func connect(ctx context.Context, address string, from net.IP) (net.Conn, error) {
	attacker := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 5 * time.Second}
	c, err := attacker.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	return c, c.SetDeadline(deadline)
}

// together runs several attacks at the same time.
func together(attacks ...func(context.Context, string)) func(context.Context, string) {
	return func(ctx context.Context, address string) {
		var all sync.WaitGroup
		for _, attack := range attacks {
			all.Go(func() { attack(ctx, address) })
		}
		all.Wait()
	}
}

// clients returns n attackers with one address. Each opens a new connection when attack returns.
func clients(n int, attack func(ctx context.Context, c net.Conn)) func(context.Context, string) {
	return clientsFrom(func(int) net.IP { return net.IPv4(127, 0, 0, 2) }, n, attack)
}

// apart returns n attackers, each with an address of its own.
func apart(n int, attack func(ctx context.Context, c net.Conn)) func(context.Context, string) {
	return clientsFrom(func(i int) net.IP { return net.IPv4(127, 1, byte(i>>8), byte(i)) }, n, attack)
}

func clientsFrom(from func(i int) net.IP, n int, attack func(ctx context.Context, c net.Conn)) func(context.Context, string) {
	return func(ctx context.Context, address string) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				for ctx.Err() == nil {
					c, err := connect(ctx, address, from(i))
					if err != nil {
						pause(ctx, 10*time.Millisecond)
						continue
					}
					attack(ctx, c)
					_ = c.Close()
				}
			})
		}
		all.Wait()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func wrongPasswords(ctx context.Context, c net.Conn) {
	for exchange(c, login(strconv.Itoa(rand.IntN(1<<30)))) {
		pause(ctx, 100*time.Millisecond) // 6,000 logins a second; more would measure the attackers
	}
}

// exchange sends a request and reads the beginning of the answer.
func exchange(c net.Conn, request string) bool {
	_, err := io.WriteString(c, request)
	if err == nil {
		_, err = c.Read(make([]byte, 64<<10))
	}
	return err == nil
}

// asking sends a request at intervals, and reads all answers.
func asking(path string, every time.Duration) func(context.Context, net.Conn) {
	return func(ctx context.Context, c net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, c) }()
		for err := error(nil); err == nil; pause(ctx, every) {
			_, err = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		}
	}
}

// unread sends a request and never reads the answer.
func unread(path string) func(context.Context, net.Conn) {
	return func(ctx context.Context, c net.Conn) {
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		<-ctx.Done()
	}
}

// requests repeats a request over one connection until that ends.
func requests(c net.Conn, line string) {
	for exchange(c, line+" HTTP/1.1\r\nHost: x\r\n\r\n") {
		continue
	}
}

// trickle sends a beginning, then one byte per second.
func trickle(beginning string) func(context.Context, net.Conn) {
	return func(ctx context.Context, c net.Conn) {
		for text := beginning; ; text = "x" {
			if _, err := io.WriteString(c, text); err != nil {
				pause(ctx, 100*time.Millisecond)
				return
			}
			pause(ctx, time.Second)
		}
	}
}

func slowReader(ctx context.Context, c net.Conn) {
	_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	for {
		pause(ctx, time.Second)
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return
		}
	}
}

// goneAfterFirstFlight sends the client's first message, reads the answer and disconnects.
type goneAfterFirstFlight struct {
	net.Conn
	sent bool
}

func (c *goneAfterFirstFlight) Write(p []byte) (int, error) {
	if c.sent {
		return 0, errors.New("gone")
	}
	c.sent = true
	return c.Conn.Write(p)
}

func resetStreams(ctx context.Context, raw net.Conn) {
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		pause(ctx, 10*time.Millisecond)
		return
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()
	f := http2.NewFramer(c, nil)
	if f.WriteSettings() != nil {
		return
	}
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for id := uint32(1); ; id += 2 {
		block.Reset()
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/metrics"}, {":authority", "x"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // writes to memory
		}
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true}) != nil ||
			f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			return
		}
		if id%200 == 1 {
			pause(ctx, 10*time.Millisecond)
		}
	}
}
