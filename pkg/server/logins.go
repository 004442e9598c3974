package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// logins bounds the passwords that reach the handlers of exporter-toolkit, which compare one at a time, at least 50 ms
// each, let any number of requests wait for that, and forget good passwords when enough bad ones have come (audit S1).
// It passes on requests without a user, passwords that were right before, and few others at a time, at most one in
// loginPause from an address that has used up its first ones. It answers all others with 429.
type logins struct {
	path    string // of the toolkit's file
	log     *zap.Logger
	warn    rate.Sometimes
	salt    string
	refused *prometheus.CounterVec

	mu        sync.Mutex
	good      map[[sha256.Size]byte]bool // keys of passwords that were right when they came last
	checking  int                        // passwords with the toolkit, without those in good
	addresses map[netip.Prefix]*rate.Limiter
}

const (
	maxCheckedLogins = 8
	maxKnownLogins   = 1024 // addresses, and good passwords
	freeLogins       = 3    // unknown passwords of an address at once
	loginPause       = 10 * time.Second
)

// Reasons of warpgauge_http_logins_refused_total.
const (
	reasonWrong   = "wrong"
	reasonBusy    = "busy"
	reasonBackoff = "backoff"
)

// newLogins registers its metric with reg, which may be nil.
func newLogins(path string, reg prometheus.Registerer, log *zap.Logger) *logins {
	l := &logins{
		path: path, log: log, warn: rate.Sometimes{Interval: warnEvery}, salt: rand.Text(),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_http_logins_refused_total",
			Help: "Requests refused for their password, by reason: wrong, or not checked because too many were being checked (busy) or because the address had failed too often (backoff). Only with a web config file.",
		}, []string{"reason"}),
		good: map[[sha256.Size]byte]bool{}, addresses: map[netip.Prefix]*rate.Limiter{},
	}
	for _, reason := range []string{reasonWrong, reasonBusy, reasonBackoff} {
		l.refused.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(l.refused)
	}
	return l
}

type passedKey struct{}

// behind returns the handler that the toolkit calls with the requests that it lets through.
func (l *logins) behind(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if passed, ok := r.Context().Value(passedKey{}).(func()); ok {
			passed()
		}
		next.ServeHTTP(w, r)
	})
}

// before returns the handler in front of the toolkit's.
func (l *logins) before(toolkit http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := regular(l.path); err != nil { // the toolkit would wait for a FIFO
			l.warn.Do(func() { l.log.Error("cannot read the web config file", zap.Error(err)) })
			writeText(w, http.StatusInternalServerError, "the web config file cannot be read\n")
			return
		}
		user, password, ok := r.BasicAuth()
		if !ok {
			toolkit.ServeHTTP(w, r)
			return
		}
		key := sha256.Sum256(fmt.Appendf(nil, "%s:%d:%s:%s", l.salt, len(user), user, password))
		known, reason := l.begin(key, addressOf(r.RemoteAddr))
		if reason != "" {
			l.refuse(w, reason)
			return
		}
		right := false
		passed := func() {
			right = true
			l.end(key, known, http.StatusOK)
		}
		c := &codeWriter{ResponseWriter: w, code: http.StatusOK}
		toolkit.ServeHTTP(c, r.WithContext(context.WithValue(r.Context(), passedKey{}, passed)))
		if !right {
			l.end(key, known, c.code)
		}
	})
}

// maxWebConfig bounds the web config file, which lists users and names files.
const maxWebConfig = 1 << 20

// regular returns an error for a file whose reader may wait for ever, or read for long.
func regular(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("%q is not a regular file", path)
	case err == nil && info.Size() > maxWebConfig:
		err = fmt.Errorf("%q is larger than %d bytes", path, maxWebConfig)
	}
	return err
}

// refuse answers a login whose password was not checked.
func (l *logins) refuse(w http.ResponseWriter, reason string) {
	l.refused.WithLabelValues(reason).Inc()
	l.warn.Do(func() {
		l.log.Warn("refusing logins without checking their passwords: too many at a time, or too many wrong ones from an address",
			zap.String("reason", reason))
	})
	w.Header().Set("Retry-After", strconv.Itoa(int(loginPause.Seconds())))
	writeText(w, http.StatusTooManyRequests, "too many logins\n")
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
		a = rate.NewLimiter(rate.Every(loginPause), freeLogins)
		l.addresses[address] = a
	}
	switch {
	case l.checking == maxCheckedLogins:
		return false, reasonBusy
	case !a.Allow():
		return false, reasonBackoff
	}
	l.checking++
	return false, ""
}

// end records the toolkit's answer to a password: OK, Unauthorized, or a code that says nothing about it.
func (l *logins) end(key [sha256.Size]byte, known bool, code int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !known {
		l.checking--
	}
	switch code {
	case http.StatusOK:
		if len(l.good) >= maxKnownLogins {
			clear(l.good)
		}
		l.good[key] = true
	case http.StatusUnauthorized:
		delete(l.good, key)
		l.refused.WithLabelValues(reasonWrong).Inc()
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
