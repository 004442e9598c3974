package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/crypto/bcrypt"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/file"
)

// loginRig has a file with one password, in front of a handler that answers "in".
type loginRig struct {
	*logins
	config *WebConfig
	dir    string
	users  string // of the file, without its end
}

func newLoginRig(t *testing.T, password string) *loginRig {
	t.Helper()
	r := &loginRig{dir: t.TempDir()}
	config := testkit.Get(ReadWebConfig(r.is(t, password), zap.NewNop()))(t)
	r.config, r.logins = config, config.logins
	return r
}

// is changes the password in the file.
func (r *loginRig) is(t *testing.T, password string) (path string) {
	t.Helper()
	hash := testkit.Get(bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost))(t)
	r.users = "basic_auth_users: {user: " + string(hash)
	path = webConfig(t, r.dir, r.users+"}\n")
	if r.config != nil {
		r.config.refresh(r.config.refresh([32]byte{}))
	}
	return path
}

// try logs in from an address. It sends no login for the password "", and an unknown user for "stranger".
func (r *loginRig) try(ctx context.Context, address, password string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
	req.RemoteAddr = address
	switch password {
	case "":
	case "stranger":
		req.SetBasicAuth("stranger", "secret")
	default:
		req.SetBasicAuth("user", password)
	}
	w := httptest.NewRecorder()
	r.config.handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, 200, "in") })).ServeHTTP(w, req)
	return w
}

func (r *loginRig) want(t *testing.T, address, password string, code int) {
	t.Helper()
	w := r.try(t.Context(), address, password)
	if h := w.Header(); w.Code != code || (h.Get("Retry-After") == "10") != (code == 429) || (h.Get("WWW-Authenticate") == "Basic") != (code == 401) {
		t.Errorf("%s with %q: %d with %v, want %d", address, password, w.Code, h, code)
	}
}

const (
	alice = "192.0.2.1:1000"
	bob   = "[2001:db8::1]:1000"
)

func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLoginRig(t, "secret")
		r.want(t, alice, "", 401)
		r.want(t, alice, "secret", 200)
		r.want(t, alice, "wrong", 401)
		r.want(t, alice, "stranger", 401)
		r.want(t, alice, "wrong", 429)  // her fourth
		r.want(t, alice, "secret", 200) // known to be right
		r.want(t, bob, "secret", 200)   // from everywhere
		webConfig(t, r.dir, r.users+", another: "+noUser+"}\n")
		r.config.refresh(r.config.refresh([32]byte{}))
		r.want(t, alice, "secret", 200)
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

		r.is(t, "changed")
		r.want(t, alice, "secret", 429) // no longer known
		time.Sleep(loginPause)
		r.want(t, alice, "secret", 401)
		r.want(t, "192.0.2.7:1", "changed", 200)
		r.want(t, alice, "changed", 200)
		for reason, want := range map[string]float64{reasonBackoff: 8, reasonBusy: 0, reasonWrong: 12} {
			testkit.Equal(t, "refused as "+reason, want, testutil.ToFloat64(r.refused.WithLabelValues(reason)))
		}
		for _, half := range []string{"basic_auth_users: 7", "", "basic_auth_users:\n"} {
			webConfig(t, r.dir, half)
			r.config.refresh(r.config.refresh([32]byte{}))
			r.want(t, alice, "", 401) // the previous users stay
		}
	})
}

// While a password is compared a bounded number waits, none of a client that left or with a password that was right before.
func TestWaitingLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLoginRig(t, "secret")
		r.want(t, alice, "secret", 200)
		busy, reason := r.begin([sha256.Size]byte{}, addressOf("198.51.100.1:1"))
		testkit.Equal(t, "reason not to wait", "", reason)
		ctx, leave := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		flood := func(from, n, want int) {
			t.Helper()
			for i := range n {
				waiting.Go(func() { r.try(ctx, fmt.Sprintf("192.0.2.%d:1", from+i), "wrong") })
			}
			if synctest.Wait(); r.waitingNow() != want {
				t.Errorf("%d wait, want %d", r.waitingNow(), want)
			}
		}
		flood(0, maxWaitingLogins+20, maxWaitingLogins)
		r.want(t, bob, "secret", 200)
		leave()
		waiting.Wait()
		for range 2 * freeLogins { // these do not count
			r.try(ctx, "203.0.113.1:1", "wrong")
		}
		if a := r.addresses[addressOf("203.0.113.1:1")]; a.wrong || a.attempts != 0 {
			t.Errorf("after passwords that were not compared: %d attempts, wrong %v", a.attempts, a.wrong)
		}
		testkit.Equal(t, "waiting after all left", 0, r.waitingNow())
		r.end(busy, [sha256.Size]byte{}, false)
		r.want(t, "203.0.113.1:1", "wrong", 401)
		r.want(t, bob, "wrong", 401)
	})
}

// TestLoginsAreFair: addresses that have failed, or have tried more often, wait behind the others.
func TestLoginsAreFair(t *testing.T) {
	l := newLogins(nil, zap.NewNop())
	key := [sha256.Size]byte{}
	begin := func(address string) *login {
		t.Helper()
		w, reason := l.begin(key, addressOf(address+":1"))
		testkit.Equal(t, "reason not to wait", "", reason)
		return w
	}
	var flood []*login
	for range 2 {
		for i := range 64 {
			flood = append(flood, begin(fmt.Sprint("192.0.2.", i)))
		}
	}
	honest := begin("198.51.100.1")
	for n, w := range flood[:64] {
		if !<-w.turn || len(honest.turn) > 0 {
			t.Fatalf("password %d: the honest client has waited for %d", n, n)
		}
		l.end(w, key, false)
	}
	if len(honest.turn) == 0 {
		t.Error("second attempts come before an honest first one")
	}
	begin("192.0.2.1")
	l.end(honest, [sha256.Size]byte{1}, true)
	second := begin("198.51.100.2")
	l.end(flood[64], key, false)
	if len(second.turn) == 0 {
		t.Error("addresses that have failed come before a new one")
	}
	l = newLogins(nil, zap.NewNop())
	begin("192.0.2.1") // is compared
	first, last := begin("192.0.2.2"), (*login)(nil)
	for i := range maxWaitingLogins {
		last = begin(fmt.Sprint("10.0.0.", i))
	}
	if len(first.turn) > 0 || len(last.turn) == 0 || <-last.turn || last.attempts > 0 {
		t.Error("of equals, it is not the newest that finds no place")
	}
}

// TestLoginsAfterRestart: addresses of right passwords come before others that have not failed.
func TestLoginsAfterRestart(t *testing.T) {
	key, store := [sha256.Size]byte{}, file.Private{Path: t.TempDir()}
	core, logs := observer.New(zap.WarnLevel)
	start := func() *logins { l := newLogins(nil, zap.New(core)); l.restore(store); return l }
	l := start()
	w, _ := l.begin(key, addressOf(alice))
	l.end(w, key, true)
	l.begin(key, addressOf(bob)) // the same password
	l.save()
	l = start()
	key[0]++
	first, _ := l.begin(key, addressOf("10.0.0.1:1"))
	for i := range maxWaitingLogins - 9 {
		l.begin(key, addressOf(fmt.Sprintf("10.1.%d.%d:1", i/256, i%256)))
	}
	honest := map[string]*login{}
	for _, address := range []string{alice, bob} {
		honest[address], _ = l.begin(key, addressOf(address))
	}
	l.end(first, key, false)
	l.end(honest[alice], key, true)
	testkit.Equal(t, "honest logins that are compared first", 2, len(honest[alice].turn)+len(honest[bob].turn))
	testkit.Must(t, store.Write(knownName, []byte("[")))
	testkit.Equal(t, "addresses in a damaged file", 0, len(start().known))
	testkit.Equal(t, "warnings about a damaged file", 1, logs.Len())
}

func TestKnownLoginsAreBounded(t *testing.T) {
	r := newLoginRig(t, "")
	for i := range 2 * maxKnownLogins {
		key, address := sha256.Sum256([]byte{byte(i), byte(i >> 8)}), addressOf(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256))
		w, reason := r.begin(key, address)
		if reason != "" {
			t.Fatalf("%v is refused: %s", address, reason)
		}
		r.end(w, key, true)
	}
	testkit.AtMost(t, "known addresses", maxKnownLogins, len(r.addresses))
	testkit.AtMost(t, "known passwords", maxGoodLogins, len(r.good))
	testkit.AtMost(t, "addresses of known passwords", maxGoodLogins, len(r.known))
}

func (l *logins) waitingNow() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}
