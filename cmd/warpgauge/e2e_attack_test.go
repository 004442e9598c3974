package main_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"warpgauge/internal/testkit/race"
)

// TestE2EAttack attacks the real binary over loopback, one way after the other, while an
// honest scraper keeps scraping from another address. At most one scrape in a hundred may
// fail, and the exporter's memory stays within a limit. WARPGAUGE_ATTACK_SECONDS is how
// long each attack takes; make attack prints the table of what was measured.
func TestE2EAttack(t *testing.T) {
	exe := build(t)
	seconds := 2
	if text := os.Getenv("WARPGAUGE_ATTACK_SECONDS"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		seconds = n
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.DefaultCost)
	must(t, err)
	dir := t.TempDir()
	writeCertificate(t, dir)
	users := filepath.Join(dir, "users.yml")
	write(t, users, "basic_auth_users: {prometheus: "+string(hash)+"}\n")
	encrypted := filepath.Join(dir, "tls.yml")
	write(t, encrypted, "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")

	list := filepath.Join(dir, "counters.csv")
	write(t, list, sharedLines)

	table := []string{fmt.Sprintf("%-42s %8s %6s %8s %8s %8s %9s", "attack", "scrapes", "lost", "p50", "p99", "memory", "recovery")}
	for _, attack := range []struct {
		name   string
		args   []string
		limit  int // of the exporter's memory, in MiB
		attack func(ctx context.Context, address string)
	}{
		{"none", nil, 300, func(context.Context, string) {}},
		{"600 clients with wrong passwords", []string{"--web-config-file=" + users}, 300, wrongPasswords},
		{"100 abandoned logins a second", []string{"--web-config-file=" + users}, 300, abandonedLogins},
		{"600 clients with slow headers", nil, 300, trickle(600, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")},
		{"3000 clients with slow bodies", nil, 300, trickle(3000, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n")},
		{"600 slow readers of 200 GPUs", []string{"--fake-devices=200"}, 500, slowReaders},
		{"600 stalled handshakes", []string{"--web-config-file=" + encrypted}, 300, trickle(600, "\x16\x03\x01")},
		{"200 abandoned handshakes a second", []string{"--web-config-file=" + encrypted}, 300, abandonedHandshakes},
		{"HTTP/2: streams opened and reset", []string{"--web-config-file=" + encrypted}, 300, resetStreams},
		{"flood of connections", nil, 300, floodOfConnections},
		{"flood of scrapes", nil, 300, floodOfScrapes},
		{"flood of other methods and paths", nil, 300, floodOfOddRequests},
		{"lists that are FIFOs, devices, 10 GB", []string{"--enable-reload-endpoint", "-f", list}, 300, hostileLists(list)},
	} {
		t.Run(strings.ReplaceAll(attack.name, " ", "_"), func(t *testing.T) {
			e := serve(t, exe, attack.args...)
			h := newHonest(t, e, strings.Contains(fmt.Sprint(attack.args), "users.yml"))
			h.once(t) // its password is known from now on
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
			defer cancel()
			var attackers sync.WaitGroup
			attackers.Go(func() { attack.attack(ctx, strings.TrimPrefix(strings.TrimPrefix(e.url, "https://"), "http://")) })
			for ctx.Err() == nil {
				h.once(t)
				time.Sleep(10 * time.Millisecond) // the honest scraper's interval
			}
			attackers.Wait()
			ended := time.Now()
			for !h.once(t) {
				if time.Since(ended) > time.Minute {
					t.Fatal("no scrape succeeds after the attack")
				}
			}
			recovery := time.Since(ended)
			memory := peakMiB(t, e.PID())
			slices.Sort(h.took)
			table = append(table, fmt.Sprintf("%-42s %8d %6d %6.1fms %6.1fms %5d MiB %7.1fms", attack.name, len(h.took), h.lost,
				ms(h.took[len(h.took)/2]), ms(h.took[len(h.took)*99/100]), memory, ms(recovery)))
			if h.lost*100 > len(h.took) {
				t.Errorf("%d of %d scrapes lost, want at most one in a hundred; the last: %v", h.lost, len(h.took), h.last)
			}
			if !race.Enabled && memory > attack.limit {
				t.Errorf("the exporter took %d MiB, want at most %d", memory, attack.limit)
			}
		})
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// hostileLists puts what is no list at its path, and has it read.
func hostileLists(path string) func(ctx context.Context, address string) {
	return func(ctx context.Context, address string) {
		for i := 0; ctx.Err() == nil; i++ {
			if err := errors.Join(os.RemoveAll(path), hostile[i%len(hostile)].make(path)); err != nil {
				panic(err) // in a directory of the test's own
			}
			if req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/-/reload", nil); err == nil {
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}
		}
	}
}

// writeCertificate writes cert.pem and key.pem, which no client trusts.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(cryptorand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// honest scrapes from 127.0.0.1, in turns over a connection that it keeps and over a new one.
type honest struct {
	kept, fresh *http.Client
	url         string
	password    bool
	took        []time.Duration // of all scrapes, lost ones too
	lost        int
	last        error
}

func newHonest(t *testing.T, e *exporter, password bool) *honest {
	t.Helper()
	client := func(keep bool) *http.Client {
		tr := &http.Transport{
			DisableKeepAlives: !keep,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // of the test's own certificate
		}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr, Timeout: 5 * time.Second}
	}
	return &honest{kept: client(true), fresh: client(false), url: e.url + "/metrics", password: password}
}

func (h *honest) once(t *testing.T) (ok bool) {
	t.Helper()
	client := h.kept
	if len(h.took)%2 == 1 {
		client = h.fresh
	}
	var header []string
	if h.password {
		header = []string{"Authorization", basic("prometheus", "secret")}
	}
	begin := time.Now()
	a, err := try(t.Context(), client, http.MethodGet, h.url, header...)
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

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// peakMiB is the most memory that a process has had.
func peakMiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

// Attackers have an address of their own.
var attacker = net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 5 * time.Second}

// clients runs n attackers until ctx ends. Each is begun again when it returns.
func clients(ctx context.Context, n int, attack func(ctx context.Context)) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				attack(ctx)
			}
		})
	}
	all.Wait()
}

// each calls attack every interval until ctx ends.
func each(ctx context.Context, interval time.Duration, attack func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			attack()
		case <-ctx.Done():
			return
		}
	}
}

// connect returns a connection that ends with ctx, or nil.
func connect(ctx context.Context, address string) net.Conn {
	c, err := attacker.DialContext(ctx, "tcp", address)
	if err != nil {
		pause(ctx, 10*time.Millisecond)
		return nil
	}
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		_ = c.Close()
		return nil
	}
	return c
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func wrongPasswords(ctx context.Context, address string) {
	clients(ctx, 600, func(ctx context.Context) {
		c := connect(ctx, address)
		if c == nil {
			return
		}
		defer c.Close()
		for i := 0; ; i++ {
			password := strconv.Itoa(rand.IntN(1 << 30))
			if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: "+basic("prometheus", password)+"\r\n\r\n"); err != nil {
				return
			}
			if _, err := c.Read(make([]byte, 4096)); err != nil {
				return
			}
			pause(ctx, 100*time.Millisecond) // 6,000 logins a second: more would measure the attackers
		}
	})
}

func abandonedLogins(ctx context.Context, address string) {
	each(ctx, 10*time.Millisecond, func() {
		if c := connect(ctx, address); c != nil {
			_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: "+basic("prometheus", "wrong")+"\r\n\r\n")
			_ = c.Close()
		}
	})
}

// trickle has n clients that send a beginning and then a byte a second.
func trickle(n int, beginning string) func(ctx context.Context, address string) {
	return func(ctx context.Context, address string) {
		clients(ctx, n, func(ctx context.Context) {
			c := connect(ctx, address)
			if c == nil {
				return
			}
			defer c.Close()
			for text := beginning; ; text = "x" {
				if _, err := io.WriteString(c, text); err != nil {
					pause(ctx, 100*time.Millisecond)
					return
				}
				pause(ctx, time.Second)
			}
		})
	}
}

func slowReaders(ctx context.Context, address string) {
	clients(ctx, 600, func(ctx context.Context) {
		c := connect(ctx, address)
		if c == nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		for {
			pause(ctx, time.Second)
			if _, err := c.Read(make([]byte, 1)); err != nil {
				return
			}
		}
	})
}

func abandonedHandshakes(ctx context.Context, address string) {
	each(ctx, 5*time.Millisecond, func() {
		c := connect(ctx, address)
		if c == nil {
			return
		}
		go func() {
			defer c.Close()
			_ = tls.Client(&goneAfterFirstFlight{Conn: c}, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) // it fails
		}()
	})
}

// goneAfterFirstFlight sends the client's first message, reads the answer and is gone.
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

func resetStreams(ctx context.Context, address string) {
	clients(ctx, 8, func(ctx context.Context) {
		raw := connect(ctx, address)
		if raw == nil {
			return
		}
		defer raw.Close()
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
				_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // to memory
			}
			if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true}) != nil ||
				f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				return
			}
			if id%200 == 1 {
				pause(ctx, 10*time.Millisecond)
			}
		}
	})
}

func floodOfConnections(ctx context.Context, address string) {
	clients(ctx, 1, func(ctx context.Context) {
		var open []net.Conn
		for len(open) < 2000 && ctx.Err() == nil {
			if c := connect(ctx, address); c != nil {
				open = append(open, c)
			}
		}
		for _, c := range open {
			_ = c.Close()
		}
	})
}

func floodOfScrapes(ctx context.Context, address string) {
	clients(ctx, 16, func(ctx context.Context) { requests(ctx, address, "GET /metrics") })
}

func floodOfOddRequests(ctx context.Context, address string) {
	odd := []string{"DELETE /metrics", "TRACE /", "POST /-/reload", "GET /" + strings.Repeat("a", 5000), "CONNECT x:1", "OPTIONS *", "GET /debug/pprof/", "BREW /x"}
	clients(ctx, 16, func(ctx context.Context) { requests(ctx, address, odd[rand.IntN(len(odd))]) })
}

// requests sends the same over one connection until that ends.
func requests(ctx context.Context, address, line string) {
	c := connect(ctx, address)
	if c == nil {
		return
	}
	defer c.Close()
	buf := make([]byte, 64<<10)
	for {
		if _, err := io.WriteString(c, line+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return
		}
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}
