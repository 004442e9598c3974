package server

import (
	"cmp"
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
	"golang.org/x/time/rate"

	"warpgauge/pkg/file"
)

// logins protects the handlers of exporter-toolkit, which compare one password at a time, at least 50 ms each, let any
// number of requests wait for that, and forget right passwords when enough wrong ones have come (audit S1). It passes on
// requests without a user and right passwords. Passwords that were right before do not wait, and the toolkit remembers
// them, because it sees no others. New ones are compared one at a time, few wait for that, even fewer from addresses
// with wrong ones, and an address that has used up its first ones has one in loginPause. It answers all others with 401,
// or with 429 if they were not compared.
type logins struct {
	path      string // of the toolkit's file
	files     *file.Reader
	log       *zap.Logger
	warn      rate.Sometimes
	salt      string
	refused   *prometheus.CounterVec
	comparing chan struct{} // holds a token while a password is compared

	mu        sync.Mutex
	good      map[[sha256.Size]byte]bool // keys of right passwords
	waiting   int                        // requests that compare a password, or wait for that
	addresses map[netip.Prefix]*loginClient
}

// loginClient is an address that has sent new passwords.
type loginClient struct {
	*rate.Limiter
	wrong bool // its last one was wrong, or it did not wait for the answer
}

const (
	maxWaitingLogins = 8    // half of them only for addresses whose last password was not wrong
	maxKnownLogins   = 1024 // addresses, and good passwords
	freeLogins       = 3    // new passwords of an address at once
	loginPause       = 10 * time.Second
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
func newLogins(path string, reg prometheus.Registerer, log *zap.Logger) *logins {
	l := &logins{
		path: path, files: file.NewReader(maxWebConfig), log: log, warn: rate.Sometimes{Interval: warnEvery},
		salt: rand.Text(), comparing: make(chan struct{}, 1),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_http_logins_refused_total",
			Help: "Requests refused for their password, by reason: wrong, or not checked because too many were being checked (busy) or because the address had failed too often (backoff). Only with a web config file.",
		}, []string{"reason"}),
		good: map[[sha256.Size]byte]bool{}, addresses: map[netip.Prefix]*loginClient{},
	}
	for _, reason := range []string{reasonWrong, reasonBusy, reasonBackoff} {
		l.refused.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(l.refused)
	}
	return l
}

// before returns the handler in front of the toolkit's.
func (l *logins) before(toolkit http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := l.files.Read(r.Context(), l.path)
		if err != nil {
			l.warn.Do(func() { l.log.Error("cannot read the web config file", zap.Error(err)) })
			writeText(w, http.StatusInternalServerError, "the web config file cannot be read\n")
			return
		}
		var c web.Config
		user, password, ok := r.BasicAuth()
		if ok && yaml.Unmarshal(text, &c) == nil && len(c.Users) > 0 { // else the toolkit compares nothing
			hash := cmp.Or(string(c.Users[user]), noUser)
			key := sha256.Sum256(fmt.Appendf(nil, "%s:%s:%d:%s:%s", l.salt, hash, len(user), user, password))
			if reason := l.check(r, key, hash, password); reason != "" {
				l.refuse(w, reason)
				return
			}
		}
		toolkit.ServeHTTP(w, r)
	})
}

// maxWebConfig bounds the web config file, which lists users and names files.
const maxWebConfig = 1 << 20

// refuse answers a login whose password is wrong or was not compared.
func (l *logins) refuse(w http.ResponseWriter, reason string) {
	l.refused.WithLabelValues(reason).Inc()
	if reason == reasonWrong {
		w.Header().Set("WWW-Authenticate", "Basic")
		writeText(w, http.StatusUnauthorized, "Unauthorized\n")
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
	address := addressOf(r.RemoteAddr)
	known, reason := l.begin(key, address)
	if known || reason != "" {
		return reason
	}
	right := false
	defer func() { l.end(key, address, right) }()
	select {
	case l.comparing <- struct{}{}:
		defer func() { <-l.comparing }()
	case <-r.Context().Done():
		return reasonBusy
	}
	if right = bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil; !right {
		return reasonWrong
	}
	return ""
}

// begin reports whether a password was right before. If not, it may return a reason against a check now. Without a
// reason the caller calls end.
func (l *logins) begin(key [sha256.Size]byte, address netip.Prefix) (known bool, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.good[key] {
		return true, ""
	}
	a := l.addresses[address]
	if a == nil {
		if len(l.addresses) >= maxKnownLogins {
			clear(l.addresses)
		}
		a = &loginClient{Limiter: rate.NewLimiter(rate.Every(loginPause), freeLogins)}
		l.addresses[address] = a
	}
	switch {
	case l.waiting == maxWaitingLogins, a.wrong && l.waiting >= maxWaitingLogins/2:
		return false, reasonBusy
	case !a.Allow():
		return false, reasonBackoff
	}
	l.waiting++
	return false, ""
}

func (l *logins) end(key [sha256.Size]byte, address netip.Prefix, right bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
	if a := l.addresses[address]; a != nil {
		a.wrong = !right
	}
	if right {
		if len(l.good) >= maxKnownLogins {
			clear(l.good)
		}
		l.good[key] = true
	}
}

// addressOf returns the address of a client, or its /64 network in IPv6, because one machine may own the whole network.
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
