package server

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/time/rate"
)

// logins checks passwords, which take at least 50 ms each, one at a time. It remembers right ones. Others wait: first those of
// addresses whose last password was not wrong, of these first the addresses of right passwords, which it saves, then those with
// fewer attempts, so that one address cannot delay another by more than one password. An address that has used up
// its first attempts has one in loginPause. Passwords that are not compared are answered with 429.
type logins struct {
	log     *zap.Logger
	warn    rate.Sometimes
	salt    string
	refused *prometheus.CounterVec
	store   Store       // nil: none
	unsaved atomic.Bool // known has changed

	mu        sync.Mutex
	good      map[[sha256.Size]byte]bool // keys of right passwords
	comparing bool
	waiting   []*login
	addresses map[netip.Prefix]*loginClient
	known     map[netip.Prefix]bool // addresses of right passwords
}

// loginClient is an address that has sent new passwords.
type loginClient struct {
	*rate.Limiter
	wrong    bool // its last one was wrong
	attempts int
}

// login is a password that waits.
type login struct {
	*loginClient
	address netip.Prefix
	known   bool
	nth     int       // attempt of the address
	turn    chan bool // true: compare it; false: another takes its place
}

// after compares two that wait: the later has failed, is unknown or has more attempts.
func (w *login) after(other *login) int {
	last := map[bool]int{true: 1}
	return cmp.Or(last[w.wrong]-last[other.wrong], last[other.known]-last[w.known], cmp.Compare(w.nth, other.nth))
}

const (
	maxWaitingLogins = 256
	maxGoodLogins    = 1024   // passwords, and their addresses
	maxKnownLogins   = 16_384 // addresses
	freeLogins       = 3      // new passwords of an address at once
	loginPause       = 10 * time.Second
	knownName        = "logins"
	maxKnownFile     = 64 << 10
)

// noUser is the hash of a random text. It is compared for users that do not exist, so that the answer takes as long.
const noUser = "$2b$10$TC8MLbzeb2P5XR3A61.V5.e0ArMinnGHBKswGI.WXPXwssfOBSSLS"

// Reasons of warpgauge_http_logins_refused_total.
const (
	reasonWrong   = "wrong"
	reasonBusy    = "busy"
	reasonBackoff = "backoff"
)

// newLogins registers its metric with reg, which may be nil.
func newLogins(reg prometheus.Registerer, log *zap.Logger) *logins {
	l := &logins{
		log: log, warn: rate.Sometimes{Interval: warnEvery}, salt: rand.Text(),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "warpgauge_http_logins_refused_total", Help: "Requests refused for their password, by reason: wrong, or not checked because too many were being checked (busy) or because the address had failed too often (backoff). Only with a web config file."}, []string{"reason"}),
		good:    map[[sha256.Size]byte]bool{}, addresses: map[netip.Prefix]*loginClient{}, known: map[netip.Prefix]bool{},
	}
	for _, reason := range []string{reasonWrong, reasonBusy, reasonBackoff} {
		l.refused.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(l.refused)
	}
	return l
}

// restore reads the addresses of right passwords that save wrote before a restart.
func (l *logins) restore(store Store) {
	if l.store = store; store == nil {
		return
	}
	var saved []netip.Prefix
	text, err := store.Read(knownName, maxKnownFile)
	if err == nil && text != nil {
		err = json.Unmarshal(text, &saved)
	}
	if err != nil {
		l.log.Warn("cannot read the addresses of former logins, which now wait as others do", zap.Error(err))
	}
	for _, address := range saved[:min(len(saved), maxGoodLogins)] {
		l.known[address] = true
	}
}

// save writes the addresses of right passwords if they have changed.
func (l *logins) save() {
	if l.store == nil || !l.unsaved.Swap(false) {
		return
	}
	l.mu.Lock()
	text, err := json.Marshal(slices.Collect(maps.Keys(l.known)))
	l.mu.Unlock()
	if err == nil {
		err = l.store.Write(knownName, text)
	}
	if err != nil {
		l.unsaved.Store(true)
		l.warn.Do(func() { l.log.Warn("cannot save the addresses of logins for a restart", zap.Error(err)) })
	}
}

// pass reports whether a request has a right password of one of the users. If not, it answers the request.
func (l *logins) pass(w http.ResponseWriter, r *http.Request, users map[string]config.Secret) bool {
	user, password, given := r.BasicAuth()
	if !given {
		unauthorized(w)
		return false
	}
	hash := cmp.Or(string(users[user]), noUser)
	key := sha256.Sum256(fmt.Appendf(nil, "%s:%s:%d:%s:%s", l.salt, hash, len(user), user, password))
	reason := l.check(r, key, hash, password)
	if reason != "" {
		l.refuse(w, reason)
	}
	return reason == ""
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Basic")
	writeText(w, http.StatusUnauthorized, "Unauthorized\n")
}

// refuse answers a login whose password is wrong or was not compared.
func (l *logins) refuse(w http.ResponseWriter, reason string) {
	l.refused.WithLabelValues(reason).Inc()
	if reason == reasonWrong {
		unauthorized(w)
		return
	}
	l.warn.Do(func() {
		l.log.Warn("refusing logins without checking their passwords: too many at a time, or too many wrong ones from an address",
			zap.String("reason", reason))
	})
	w.Header().Set("Retry-After", strconv.Itoa(int(loginPause.Seconds())))
	writeText(w, http.StatusTooManyRequests, "too many logins\n")
}

// check returns why a password does not pass. It returns early if the client leaves.
func (l *logins) check(r *http.Request, key [sha256.Size]byte, hash, password string) (reason string) {
	w, reason := l.begin(key, addressOf(r.RemoteAddr))
	if w == nil {
		return reason
	}
	select {
	case compare := <-w.turn:
		if !compare {
			return reasonBusy
		}
	case <-r.Context().Done():
		l.leave(w)
		return reasonBusy
	}
	right := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
	l.end(w, key, right)
	if !right {
		return reasonWrong
	}
	return ""
}

// begin returns the login that waits for its turn, or nil for a password that was right before, or that must not wait for the
// given reason.
func (l *logins) begin(key [sha256.Size]byte, address netip.Prefix) (w *login, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.good[key] {
		l.knowLocked(address)
		return nil, ""
	}
	a := l.addresses[address]
	if a == nil {
		makeRoom(l.addresses, maxKnownLogins)
		a = &loginClient{Limiter: rate.NewLimiter(rate.Every(loginPause), freeLogins)}
		l.addresses[address] = a
	}
	if !a.Allow() {
		return nil, reasonBackoff
	}
	a.attempts++
	w = &login{loginClient: a, address: address, known: l.known[address], nth: a.attempts, turn: make(chan bool, 1)}
	l.waiting = append(l.waiting, w)
	if len(l.waiting) > maxWaitingLogins {
		last := slices.MaxFunc(append([]*login{w}, l.waiting...), (*login).after) // the newest of equals
		l.removeLocked(last)
		last.giveBack()
		last.turn <- false
	}
	l.nextLocked()
	return w, ""
}

// makeRoom deletes an entry of a full map: to find the oldest would hold the lock.
func makeRoom[K comparable, V any](m map[K]V, limit int) {
	for some := range m {
		if len(m) < limit {
			return
		}
		delete(m, some)
	}
}

func (l *logins) knowLocked(address netip.Prefix) {
	if !l.known[address] {
		makeRoom(l.known, maxGoodLogins)
		l.known[address] = true
		l.unsaved.Store(true)
	}
}

func (l *logins) removeLocked(w *login) bool {
	before := len(l.waiting)
	l.waiting = slices.DeleteFunc(l.waiting, func(other *login) bool { return other == w })
	return len(l.waiting) < before
}

// nextLocked lets the next password be compared, unless one is.
func (l *logins) nextLocked() {
	if l.comparing || len(l.waiting) == 0 {
		return
	}
	next := slices.MinFunc(l.waiting, (*login).after) // the first of equals
	l.removeLocked(next)
	l.comparing = true
	next.turn <- true
}

// giveBack undoes the attempt of a login whose password is not compared.
func (w *login) giveBack() {
	w.attempts--
	w.AllowN(time.Now(), -1)
}

// leave ends a login whose client has gone.
func (l *logins) leave(w *login) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.removeLocked(w) {
		w.giveBack()
	} else if <-w.turn { // else another had its place
		w.giveBack()
		l.comparing = false
		l.nextLocked()
	}
}

func (l *logins) end(w *login, key [sha256.Size]byte, right bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.comparing, w.wrong = false, !right
	if right {
		makeRoom(l.good, maxGoodLogins)
		l.good[key] = true
		l.knowLocked(w.address)
	}
	l.nextLocked()
}

// addressOf returns the address of a client, or its /64 network in IPv6, because one machine may own the whole network. The user of a
// Unix socket is an address of the network that discards everything (RFC 6666).
func addressOf(remote string) netip.Prefix {
	if uid, err := strconv.ParseUint(strings.TrimPrefix(remote, userPrefix), 10, 32); err == nil && strings.HasPrefix(remote, userPrefix) {
		b := [16]byte{0: 1}
		binary.BigEndian.PutUint32(b[12:], uint32(uid))
		return netip.PrefixFrom(netip.AddrFrom16(b), 128)
	}
	client, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // not TCP: all such clients count as one
	}
	ip := client.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // the length is valid
	return p
}
