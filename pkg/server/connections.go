package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// connections evicts connections without progress when there are more than the limit, so that clients that send or read
// nothing cannot keep others out. The victim belongs to the address with the most connections, and among those its
// state has been unchanged for the longest time: nothing was received, part of a header was received, it is idle, or
// its request takes long. Its reads and writes fail, so that net/http closes it now or when its handler returns. Until
// then it occupies a slot of netutil.LimitListener, which has an eighth more than the limit, so that handlers that do
// not end are bounded, too.
//
// With TLS, an address has a lower limit of connections without a request, because each handshake takes at least 1 ms
// of CPU.
type connections struct {
	limit   int // MaxConnections
	evicted prometheus.Counter
	log     *zap.Logger
	warn    rate.Sometimes

	mu      sync.Mutex
	open    map[net.Conn]*connection // until net/http has closed them
	changes uint64
	silent  int // limit of connections without a request per address
}

type connection struct {
	address netip.Prefix
	changed uint64 // connections.changes at the last change of state
	active  bool   // from the end of a request's header to the end of its answer
	asked   bool   // a request was received
	evicted bool
}

// warnEvery bounds the log lines about evicted connections, and about logins.
const warnEvery = time.Minute

// maxHandshakes is the maximum number of TLS connections without a request per address.
const maxHandshakes = 64

func newConnections(limit int, evicted prometheus.Counter, log *zap.Logger) *connections {
	return &connections{limit: limit, silent: limit, evicted: evicted, log: log, warn: rate.Sometimes{Interval: warnEvery}, open: map[net.Conn]*connection{}}
}

// useTLS lowers the limit of connections without a request.
func (c *connections) useTLS() { c.silent = min(c.limit, maxHandshakes) }

// slots returns the maximum number of accepted connections.
func (c *connections) slots() int { return c.limit + c.limit/8 + 1 }

// changed is the servers' ConnState hook.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	v := c.open[conn]
	switch {
	case state == http.StateNew:
		v = &connection{address: addressOf(conn.RemoteAddr().String()), changed: c.changes}
		c.open[conn] = v
		c.evictLocked(v.address)
	case state == http.StateClosed || state == http.StateHijacked:
		delete(c.open, conn)
	case !v.evicted:
		v.active, v.asked, v.changed = state == http.StateActive, true, c.changes
	case state == http.StateActive: // its header was received before the eviction
		end(conn)
	default: // idle: net/http sets another deadline afterwards
		closeNow(conn)
	}
}

// evictLocked evicts one connection if there are too many, or too many without a request from the newest's address.
func (c *connections) evictLocked(newest netip.Prefix) {
	total, most, silent, of := 0, 0, 0, map[netip.Prefix]int{}
	for _, v := range c.open {
		if v.evicted {
			continue
		}
		total++
		of[v.address]++
		most = max(most, of[v.address])
		if v.address == newest && !v.asked {
			silent++
		}
	}
	if total <= c.limit && silent <= c.silent {
		return
	}
	var victim net.Conn
	for conn, v := range c.open {
		candidate := of[v.address] == most
		if total <= c.limit {
			candidate = v.address == newest && !v.asked
		}
		if candidate && !v.evicted && (victim == nil || v.changed < c.open[victim].changed) {
			victim = conn
		}
	}
	v := c.open[victim]
	v.evicted = true
	end(victim)
	c.evicted.Inc()
	c.warn.Do(func() {
		c.log.Warn("closing connections to make room for new ones", zap.Int("limit", c.limit), zap.Stringer("address", v.address.Addr()))
	})
}

// end makes all reads and writes fail. It does not close the connection, because that would free the slot while a
// handler is still running.
func end(conn net.Conn) {
	_ = conn.SetDeadline(time.Unix(1, 0)) // an error means that it is closed
}

func closeNow(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn() // a TLS connection would wait until its last message is sent
	}
	_ = conn.Close() // nothing to do about an error
}

// closeWaiting closes the connections that wait for a request, because http.Server.Shutdown would give an incomplete
// header five seconds.
func (c *connections) closeWaiting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, v := range c.open {
		if !v.active && !v.evicted {
			closeNow(conn)
		}
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
