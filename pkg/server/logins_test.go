package server

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"

	"warpgauge/internal/testkit/eventually"
)

// loginRig has logins around a toolkit with one password in front of a handler that answers "in".
type loginRig struct {
	*logins
	password string
	check    time.Duration // how long the toolkit compares
}

func newLoginRig(t *testing.T, password string) *loginRig {
	t.Helper()
	return &loginRig{newLogins(webConfig(t, t.TempDir(), ""), prometheus.NewRegistry(), zap.NewNop()), password, 0}
}

func (r *loginRig) serveToolkit(w http.ResponseWriter, q *http.Request) {
	_, password, ok := q.BasicAuth()
	switch {
	case password == "limited":
		writeText(w, http.StatusTooManyRequests, "the toolkit's own limit")
	case ok && password == r.password:
		r.behind(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, 200, "in") })).ServeHTTP(w, q)
	default:
		time.Sleep(r.check)
		writeText(w, http.StatusUnauthorized, "no")
	}
}

// want logs in from an address; an empty password means a request without a user.
func (r *loginRig) want(t *testing.T, address, password string, code int) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	req.RemoteAddr = address
	if password != "" {
		req.SetBasicAuth("user", password)
	}
	w := httptest.NewRecorder()
	if r.before(http.HandlerFunc(r.serveToolkit)).ServeHTTP(w, req); w.Code != code {
		t.Errorf("%s with %q: %d, want %d", address, password, w.Code, code)
	}
	if again := w.Header().Get("Retry-After"); (again == "10") != (code == http.StatusTooManyRequests && password != "limited") {
		t.Errorf("%s with %q: %d with Retry-After %q", address, password, w.Code, again)
	}
}

const (
	alice = "192.0.2.1:1000"
	bob   = "[2001:db8::1]:1000"
)

func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLoginRig(t, "secret")
		r.want(t, alice, "", 401) // the toolkit's answer
		r.want(t, alice, "secret", 200)
		r.want(t, alice, "wrong", 401)
		r.want(t, alice, "wrong", 401)
		r.want(t, alice, "wrong", 429)  // her fourth
		r.want(t, alice, "secret", 200) // known to be right
		r.want(t, bob, "secret", 200)   // from everywhere
		for _, network := range []string{bob, "[2001:db8::2]:7", "[2001:db8::ffff:3]:7"} {
			r.want(t, network, "wrong", 401)
		}
		r.want(t, bob, "wrong", 429)
		r.want(t, "[2001:db8:0:1::1]:7", "wrong", 401)
		for range 5 {
			time.Sleep(loginPause)
			r.want(t, alice, "wrong", 401)
			r.want(t, alice, "wrong", 429)
		}

		r.password = "changed"
		r.want(t, alice, "secret", 401)
		r.want(t, alice, "secret", 429) // no longer known
		time.Sleep(loginPause)
		r.want(t, alice, "changed", 200)
		r.want(t, alice, "changed", 200)
		r.want(t, "192.0.2.7:1", "limited", 429) // which says nothing about the password
		for reason, want := range map[string]float64{reasonBackoff: 8, reasonBusy: 0, reasonWrong: 12} {
			if n := testutil.ToFloat64(r.refused.WithLabelValues(reason)); n != want {
				t.Errorf("%v refused as %s, want %v", n, reason, want)
			}
		}
		if n := r.busy(); n != 0 {
			t.Errorf("%d logins are checked at the end, want none", n)
		}
		if err := os.Remove(r.path); err != nil {
			t.Fatal(err)
		}
		r.want(t, alice, "changed", 500)
	})
}

// Few passwords are with the toolkit at a time.
func TestLoginsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLoginRig(t, "secret")
		r.want(t, alice, "secret", 200)
		r.check = time.Second
		var checked sync.WaitGroup
		for i := range maxCheckedLogins {
			checked.Go(func() { r.want(t, fmt.Sprintf("192.0.2.%d:1", 10+i), "wrong", 401) })
		}
		synctest.Wait()
		r.want(t, bob, "wrong", 429)
		r.want(t, bob, "secret", 200) // known, so it does not wait
		checked.Wait()
		r.want(t, bob, "wrong", 401)
	})
}

func TestKnownLoginsAreBounded(t *testing.T) {
	r := newLoginRig(t, "")
	for i := range 3 * maxKnownLogins {
		r.password = fmt.Sprint(i)
		r.want(t, fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), r.password, 200)
	}
	if len(r.addresses) > maxKnownLogins || len(r.good) > maxKnownLogins {
		t.Errorf("%d addresses and %d passwords are known, want at most %d", len(r.addresses), len(r.good), maxKnownLogins)
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
	eventually.True(t, "no login is being checked", func() bool { return s.logins.busy() == 0 })
	if checked := testutil.ToFloat64(s.logins.refused.WithLabelValues(reasonWrong)); checked > 20 {
		t.Errorf("%v passwords were compared, want few of one address", checked)
	}
}

func (l *logins) busy() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checking
}
