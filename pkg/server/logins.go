package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"

	"warpgauge/pkg/file"
)

// logins protects the handlers of exporter-toolkit, which check one password at a time, at least 50 ms each, queue any
// number of requests for that, and forget good passwords when enough bad ones have come (audit S1). It passes on
//
//   - requests without a user, which the toolkit answers;
//   - passwords that were right before: they do not wait, and the toolkit remembers them, because it sees no others;
//   - passwords that it has checked right now. Few requests may wait for a check, fewer of one address, and none of an
//     address with several recent failures.
//
// It answers all others with 401, or with 429 and Retry-After if the password was not checked.
type logins struct {
	path  string // of the toolkit's file
	files *file.Reader
	log   *zap.Logger

	reading  chan struct{} // holds a token while the file is read
	checking chan struct{} // holds a token while a password is compared
	refused  *prometheus.CounterVec

	mu        sync.Mutex
	users     *users
	waiting   int // requests that check a password or wait for a check
	addresses map[netip.Prefix]*attempts
	warned    time.Time
}

// users holds the users of one version of the file.
type users struct {
	text   []byte // content of the file
	hashes map[string]string
	good   map[[sha256.Size]byte]bool // keys of right passwords, at most one per user
	salt   [16]byte
}

// attempts counts the logins from one address.
type attempts struct {
	waiting int
	failed  int       // consecutive
	until   time.Time // no password check before
}

const (
	maxWaitingLogins        = 8
	maxWaitingLoginsAddress = 2
	maxLoginAddresses       = 1024
	freeFailures            = 3 // before an address must wait
	firstBackoff            = 500 * time.Millisecond
	maxBackoff              = 30 * time.Second
	maxPasswordBytes        = 72 // bcrypt ignores the rest
)

// unknownUserHash is compared for users that do not exist, so that the answer takes equally long. It is the hash of
// a random password.
var unknownUserHash = sync.OnceValue(func() string {
	hash, err := bcrypt.GenerateFromPassword([]byte(rand.Text()), bcrypt.DefaultCost)
	if err != nil {
		panic("hash a random password: " + err.Error()) // length and cost are valid
	}
	return string(hash)
})

// newLoginStats creates the counter of refused logins and registers it with reg, which may be nil.
func newLoginStats(reg prometheus.Registerer) *prometheus.CounterVec {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warpgauge_http_logins_refused_total",
		Help: "Requests refused for their password, by reason: wrong, or not checked because too many were being checked (busy) or because the address had failed too often (backoff). Only with a web config file.",
	}, []string{"reason"})
	for _, reason := range []string{reasonWrong, reasonBusy, reasonBackoff} {
		refused.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(refused)
	}
	return refused
}

func newLogins(path string, refused *prometheus.CounterVec, log *zap.Logger) *logins {
	return &logins{
		path:      path,
		files:     file.NewReader(maxWebConfig),
		log:       log,
		reading:   make(chan struct{}, 1),
		checking:  make(chan struct{}, 1),
		refused:   refused,
		addresses: map[netip.Prefix]*attempts{},
	}
}

// before returns a handler that checks logins before next.
func (l *logins) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.serve(next, w, r) })
}

func (l *logins) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	u, err := l.readUsers(r.Context())
	if err != nil {
		if l.mayWarn() {
			l.log.Error("cannot read the web config file", zap.Error(err))
		}
		writeText(w, http.StatusInternalServerError, "the web config file cannot be read\n")
		return
	}
	user, password, ok := r.BasicAuth()
	if !ok || len(u.hashes) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	key := u.key(user, password)
	address := addressOf(r.RemoteAddr)
	known, retry, reason := l.begin(u, key, address)
	switch {
	case known:
		next.ServeHTTP(w, r)
		return
	case reason != "":
		l.refuse(w, reason, retry)
		return
	}
	right, checked := l.check(r.Context(), u, user, password)
	l.end(u, key, address, right, checked)
	switch {
	case right:
		next.ServeHTTP(w, r)
		return
	case !checked:
		return // the client has left
	}
	l.refused.WithLabelValues(reasonWrong).Inc()
	w.Header().Set("WWW-Authenticate", "Basic")
	writeText(w, http.StatusUnauthorized, "Unauthorized\n")
}

// mayWarn limits the log lines that clients can cause.
func (l *logins) mayWarn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.warned) < warnEvery {
		return false
	}
	l.warned = now
	return true
}

// Reasons of warpgauge_http_logins_refused_total.
const (
	reasonWrong   = "wrong"
	reasonBusy    = "busy"
	reasonBackoff = "backoff"
)

// refuse answers a login whose password was not checked.
func (l *logins) refuse(w http.ResponseWriter, reason string, retry time.Duration) {
	l.refused.WithLabelValues(reason).Inc()
	if l.mayWarn() {
		l.log.Warn("refusing logins without checking their passwords: too many at a time, or too many wrong ones from an address",
			zap.String("reason", reason))
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(retry/time.Second)+1))
	writeText(w, http.StatusTooManyRequests, "too many logins\n")
}

// readUsers returns the users of the current file, or the former users while another request reads it, because a Reader
// refuses more than a few reads at a time. A file that exporter-toolkit cannot use has no users: the toolkit answers
// those requests itself.
func (l *logins) readUsers(ctx context.Context) (*users, error) {
	l.mu.Lock()
	before := l.users
	l.mu.Unlock()
	select {
	case l.reading <- struct{}{}:
	default:
		if before != nil {
			return before, nil
		}
		select {
		case l.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-l.reading }()
	text, err := l.files.Read(ctx, l.path)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users != nil && bytes.Equal(l.users.text, text) {
		return l.users, nil
	}
	u := &users{text: text, hashes: map[string]string{}, good: map[[sha256.Size]byte]bool{}}
	_, _ = rand.Read(u.salt[:]) // never fails
	var c web.Config
	if yaml.Unmarshal(text, &c) == nil {
		for user, hash := range c.Users {
			u.hashes[user] = string(hash)
		}
	}
	l.users = u
	return u, nil
}

// key identifies a user with a password.
func (u *users) key(user, password string) [sha256.Size]byte {
	password = password[:min(len(password), maxPasswordBytes)]
	return sha256.Sum256(fmt.Appendf(u.salt[:len(u.salt):len(u.salt)], "%d:%s:%s", len(user), user, password))
}

// begin reports whether a password is known to be right. Otherwise it may return a reason against a check now, and how
// long to wait. Without a reason the caller checks the password and calls end.
func (l *logins) begin(u *users, key [sha256.Size]byte, address netip.Prefix) (known bool, retry time.Duration, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u.good[key] {
		return true, 0, ""
	}
	now := time.Now()
	a := l.addresses[address]
	switch {
	case a != nil && now.Before(a.until):
		return false, a.until.Sub(now), reasonBackoff
	case l.waiting == maxWaitingLogins || a != nil && a.waiting == maxWaitingLoginsAddress:
		return false, 0, reasonBusy
	case a == nil:
		if len(l.addresses) >= maxLoginAddresses {
			l.forgetLocked(now)
		}
		a = &attempts{}
		l.addresses[address] = a
	}
	l.waiting++
	a.waiting++
	return false, 0, ""
}

// forgetLocked makes room for an address: it drops all addresses that may try again, or else the next one that may.
// Waiting addresses stay, because they are few.
func (l *logins) forgetLocked(now time.Time) {
	var first netip.Prefix
	var until time.Time
	for address, a := range l.addresses {
		switch {
		case a.waiting > 0:
		case !now.Before(a.until):
			delete(l.addresses, address)
		case until.IsZero() || a.until.Before(until):
			first, until = address, a.until
		}
	}
	if len(l.addresses) >= maxLoginAddresses {
		delete(l.addresses, first)
	}
}

// check compares a password when its turn comes. It returns early if the client leaves.
func (l *logins) check(ctx context.Context, u *users, user, password string) (right, checked bool) {
	select {
	case l.checking <- struct{}{}:
	case <-ctx.Done():
		return false, false
	}
	defer func() { <-l.checking }()
	if ctx.Err() != nil {
		return false, false
	}
	hash, exists := u.hashes[user]
	if !exists {
		hash = unknownUserHash()
	}
	err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password))
	return err == nil && exists, true
}

func (l *logins) end(u *users, key [sha256.Size]byte, address netip.Prefix, right, checked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
	a := l.addresses[address]
	a.waiting--
	switch {
	case !checked:
	case right:
		u.good[key] = true
		a.failed = 0
	default:
		if a.failed++; a.failed >= freeFailures {
			a.until = time.Now().Add(min(firstBackoff<<min(a.failed-freeFailures, 16), maxBackoff))
		}
	}
	if a.waiting == 0 && a.failed == 0 {
		delete(l.addresses, address)
	}
}

// addressOf returns the address of a client, or its /64 network in IPv6, because one machine may own the
// whole network.
func addressOf(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return netip.Prefix{} // not TCP: all such clients count as one
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // the length is valid
	return p
}
