package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"
)

// loginRig has logins in front of a handler that answers "in".
type loginRig struct {
	*logins
	dir string
	reg *prometheus.Registry
}

func newLoginRig(t *testing.T, passwords ...string) *loginRig {
	t.Helper()
	r := &loginRig{dir: t.TempDir(), reg: prometheus.NewRegistry()}
	r.logins = newLogins(r.users(t, passwords...), newLoginStats(r.reg), zap.NewNop())
	return r
}

// users writes the file: user0 has the first password, and so on.
func (r *loginRig) users(t *testing.T, passwords ...string) string {
	t.Helper()
	text := "basic_auth_users:\n"
	for i, p := range passwords {
		hash, err := bcrypt.GenerateFromPassword([]byte(p), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("  user%d: %s\n", i, hash)
	}
	return webConfig(t, r.dir, text)
}

// try logs in from an address; an empty user means a request without one.
func (r *loginRig) try(ctx context.Context, address, user, password string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
	req.RemoteAddr = address
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	w := httptest.NewRecorder()
	r.before(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, 200, "in") })).ServeHTTP(w, req)
	return w
}

func (r *loginRig) want(t *testing.T, address, user, password string, code int) {
	t.Helper()
	if w := r.try(t.Context(), address, user, password); w.Code != code {
		t.Errorf("%s as %q with %q: %d, want %d", address, user, password, w.Code, code)
	}
}

const (
	alice = "192.0.2.1:1000"
	bob   = "[2001:db8::1]:1000"
)

func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLoginRig(t, "secret", strings.Repeat("x", 72))
		r.want(t, alice, "", "", 200) // the toolkit answers this
		r.want(t, alice, "user0", "secret", 200)
		r.want(t, alice, "user1", strings.Repeat("x", 72), 200)
		r.want(t, alice, "user1", "secret", 401)
		r.want(t, alice, "stranger", "secret", 401)
		if w := r.try(t.Context(), bob, "user0", ""); w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Basic" {
			t.Errorf("no password: %d with %v, want 401 that asks for one", w.Code, w.Header())
		}
		r.want(t, alice, "user0", "wrong", 401)
		// That was the third attempt on Alice's account.
		w := r.try(t.Context(), alice, "user0", "wrong")
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("after %d failures: %d, Retry-After %q; want 429 and 1", freeFailures, w.Code, w.Header().Get("Retry-After"))
		}
		r.want(t, alice, "user0", "secret", 200)                 // known to be right
		r.want(t, bob, "user0", "secret", 200)                   // from everywhere
		r.want(t, "[2001:db8::2]:7", "user0", "wrong", 401)      // Bob's network
		r.want(t, "[2001:db8::ffff:3]:7", "user0", "wrong", 401) // his third
		r.want(t, bob, "user0", "wrong", 429)
		r.want(t, "[2001:db8:0:1::1]:7", "user0", "wrong", 401)

		for i := range 10 { // each failure doubles the wait, up to a limit
			wait := min(firstBackoff<<i, maxBackoff)
			time.Sleep(wait - time.Millisecond)
			r.want(t, alice, "user0", "wrong", 429)
			time.Sleep(time.Millisecond)
			r.want(t, alice, "user0", "wrong", 401)
		}

		r.users(t, "changed")
		r.want(t, "192.0.2.2:1", "user0", "secret", 401)
		r.want(t, "192.0.2.2:1", "user0", "changed", 200)
		time.Sleep(maxBackoff)
		r.want(t, alice, "user0", "changed", 200) // and no longer counts towards the limit
		r.want(t, alice, "user0", "wrong", 401)

		webConfig(t, r.dir, "basic_auth_users: 7")
		r.want(t, alice, "user0", "wrong", 200) // the toolkit answers 500
		if err := os.Remove(r.path); err != nil {
			t.Fatal(err)
		}
		r.want(t, alice, "user0", "wrong", 500)
		err := testutil.GatherAndCompare(r.reg, strings.NewReader(`
# HELP warpgauge_http_logins_refused_total Requests refused for their password, by reason: wrong, or not checked because too many were being checked (busy) or because the address had failed too often (backoff). Only with a web config file.
# TYPE warpgauge_http_logins_refused_total counter
warpgauge_http_logins_refused_total{reason="backoff"} 12
warpgauge_http_logins_refused_total{reason="busy"} 0
warpgauge_http_logins_refused_total{reason="wrong"} 19
`))
		if err != nil {
			t.Error(err)
		}
	})
}

// Few requests wait while a password is being compared, and requests of clients that left stop waiting.
func TestWaitingLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLoginRig(t, "secret")
		r.want(t, alice, "user0", "secret", 200)
		r.checking <- struct{}{} // one is being compared

		ctx, leave := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		begin := func(address string) {
			waiting.Go(func() { r.try(ctx, address, "user0", "wrong") })
			synctest.Wait()
		}
		for i := range maxWaitingLogins / maxWaitingLoginsAddress {
			address := fmt.Sprintf("192.0.2.%d:1", 10+i)
			for range maxWaitingLoginsAddress {
				begin(address)
			}
			r.want(t, address, "user0", "wrong", 429)
		}
		r.want(t, "192.0.2.100:1", "user0", "secret2", 429)
		r.want(t, "192.0.2.100:1", "user0", "secret", 200) // known, so it does not wait

		leave()
		waiting.Wait()
		if r.waiting != 0 || len(r.addresses) != 0 {
			t.Errorf("%d requests wait, %d addresses are known after all clients have gone; want none", r.waiting, len(r.addresses))
		}
		<-r.checking
		r.want(t, "192.0.2.100:1", "user0", "wrong", 401)
		if n := testutil.ToFloat64(r.refused.WithLabelValues(reasonWrong)); n != 1 {
			t.Errorf("%v wrong passwords, want 1: those whose client had gone were not compared", n)
		}
	})
}

// Many simultaneous requests must not read the file as often, because a Reader refuses that.
func TestManyRequestsReadTheFile(t *testing.T) {
	r := newLoginRig(t, "secret")
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			for range 20 {
				if w := r.try(t.Context(), alice, "", ""); w.Code != 200 {
					t.Errorf("%d %q, want 200", w.Code, w.Body)
					return
				}
			}
		})
	}
	all.Wait()
	before := r.logins.users
	r.users(t, "changed")
	r.reading <- struct{}{} // another request reads
	if u, err := r.readUsers(t.Context()); err != nil || u != before {
		t.Errorf("while another request reads the file: %v, %v; want the users from before", u, err)
	}
	<-r.reading
	if u, err := r.readUsers(t.Context()); err != nil || u == before {
		t.Errorf("after that: %v, %v; want the users of the file", u, err)
	}
}

func TestAddressesOfLoginsAreBounded(t *testing.T) {
	r := newLoginRig(t, "secret")
	u, err := r.readUsers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := u.key("user0", "wrong")
	for i := range 3 * maxLoginAddresses {
		address := addressOf(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256))
		for range freeFailures {
			if _, _, reason := r.begin(u, key, address); reason != "" {
				t.Fatalf("%v is refused: %s", address, reason)
			}
			r.end(u, key, address, false, true)
		}
		if _, _, reason := r.begin(u, key, address); reason != reasonBackoff {
			t.Fatalf("%v after %d failures: %q, want it refused", address, freeFailures, reason)
		}
	}
	if n := len(r.addresses); n > maxLoginAddresses {
		t.Errorf("%d addresses remembered, want at most %d", n, maxLoginAddresses)
	}
}

// TestFloodOfLogins is finding S1 of the audit: clients with wrong passwords, and clients that do not wait
// for the answer, must not block honest scrapes or leave anything behind.
func TestFloodOfLogins(t *testing.T) {
	s, address, _ := start(t, pagesOf(textPage), Options{WebConfigFile: basicAuth(t, bcrypt.DefaultCost)})
	honest(t, "before", address)
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for i := range 300 {
		c, err := from.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic cHJvbWV0aGV1czp3cm9uZw==\r\n\r\n")
		if i%2 == 0 {
			c.Close()
		} else {
			t.Cleanup(func() { c.Close() })
		}
		if i%10 == 9 {
			honest(t, fmt.Sprintf("after %d logins", i+1), address)
		}
	}
	for s.logins.busy() { // the last one is being compared, which takes 50 ms
		time.Sleep(time.Millisecond)
	}
	if checked := testutil.ToFloat64(s.logins.refused.WithLabelValues(reasonWrong)); checked > 20 {
		t.Errorf("%v passwords were compared, want few of one address", checked)
	}
}

func (l *logins) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting > 0
}
