package server

import (
	"cmp"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
)

// connections evicts a connection when there are more than the limit, so that clients that send or read nothing cannot keep
// others out. It picks the lowest rank: among connections without a request the address with the most of them, among those of
// known addresses the one that came last, then the one whose state has been unchanged for the longest time. Its reads and
// writes fail, so net/http closes it now or when its handler returns. Until then it keeps a slot of netutil.LimitListener,
// which has an eighth more than the limit. With TLS, an address has a lower limit of connections without a request, because
// each handshake takes at least 1 ms of CPU.
type connections struct {
	limit   int // MaxConnections
	evicted prometheus.Counter
	log     *zap.Logger
	warn    rate.Sometimes

	mu       sync.Mutex
	open     map[net.Conn]*connection // until net/http has closed them
	hosts    map[netip.Prefix]*host   // with open connections
	answered map[netip.Prefix]answerTimes
	total    int // open and not evicted
	changes  uint64
	silent   int // limit of connections without a request per address
}

// host is an address. Its counts are of connections that are not evicted.
type host struct {
	address       netip.Prefix
	open, unasked int
	answerTimes
}

// answerTimes are of the first and the last answer to an address that asks more often than every two minutes.
type answerTimes struct{ first, last time.Time }

type connection struct {
	*host
	changed uint64 // connections.changes at the last change of state
	since   time.Time
	active  bool // from the end of a request's header to the end of its answer
	asked   bool // a request was received
	evicted bool
}

// Ranks of connections.
const (
	silent    = iota // without a request for a while
	idle             // answered more than a usual scrape interval ago
	young            // without a request
	slow             // the answer takes long, or the address is new
	known            // its address was answered lately
	greeting         // such an address has opened it for a request
	answering        // such an address is being answered
	regular          // added to the three before for an address that has asked for regularAfter
)

const (
	grace         = 5 * time.Second
	scrapedWithin = time.Minute // the longest usual interval between two scrapes
	regularAfter  = 5 * time.Minute
	fairShare     = 8    // an address with more connections than this, and than an eighth of the limit, does not count as known
	maxKnown      = 4096 // addresses
)

func (v *connection) rank(now time.Time) int {
	age, lately, more := now.Sub(v.since), now.Sub(v.last) < 2*scrapedWithin, 0
	if v.last.Sub(v.first) >= regularAfter {
		more = regular
	}
	switch {
	case !v.asked && age >= grace:
		return silent
	case v.asked && !v.active && age >= scrapedWithin:
		return idle
	case v.active && (age >= grace || !lately):
		return slow
	case lately && v.active:
		return answering + more
	case lately && !v.asked:
		return greeting + more
	case lately:
		return known + more
	}
	return young
}

// warnEvery bounds the log lines about evicted connections, and about logins.
const warnEvery = time.Minute

// maxHandshakes is the maximum number of TLS connections without a request per address.
const maxHandshakes = 64

func newConnections(limit int, evicted prometheus.Counter, log *zap.Logger) *connections {
	return &connections{limit: limit, silent: limit, evicted: evicted, log: log, warn: rate.Sometimes{Interval: warnEvery}, open: map[net.Conn]*connection{}, hosts: map[netip.Prefix]*host{}, answered: map[netip.Prefix]answerTimes{}}
}

// Bound limits the connections of an HTTP server as the exporter's are: those that do nothing go first.
func Bound(srv *http.Server, l net.Listener, limit int, log *zap.Logger) net.Listener {
	c := newConnections(limit, prometheus.NewCounter(prometheus.CounterOpts{}), log)
	srv.ConnState = c.changed
	return netutil.LimitListener(l, c.slots())
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
	v, now := c.open[conn], time.Now()
	if v != nil && v.active && !v.evicted && now.Sub(v.since) < grace {
		if _, before := c.answered[v.address]; !before && len(c.answered) >= maxKnown {
			older := func(a, b netip.Prefix) int { return c.answered[a].last.Compare(c.answered[b].last) }
			delete(c.answered, slices.MinFunc(slices.Collect(maps.Keys(c.answered)), older))
		}
		if now.Sub(v.last) >= 2*scrapedWithin {
			v.first = now
		}
		v.last = now
		c.answered[v.address] = v.answerTimes
	}
	switch {
	case state == http.StateNew:
		address := addressOf(conn.RemoteAddr().String())
		h := c.hosts[address]
		if h == nil {
			h = &host{address: address, answerTimes: c.answered[address]}
			c.hosts[address] = h
		}
		v = &connection{host: h, changed: c.changes, since: now}
		c.open[conn] = v
		c.tally(v, 1)
		c.evictLocked(conn, now)
	case state == http.StateClosed || state == http.StateHijacked:
		if delete(c.open, conn); v != nil && !v.evicted {
			c.tally(v, -1)
		}
	case !v.evicted:
		if !v.asked {
			v.unasked--
		}
		v.active, v.asked, v.changed, v.since = state == http.StateActive, true, c.changes, now
	case state == http.StateActive: // its header was received before the eviction
		end(conn)
	default: // idle: net/http sets another deadline afterwards
		closeNow(conn)
	}
}

// tally counts a connection that comes or goes.
func (c *connections) tally(v *connection, n int) {
	c.total += n
	if v.open += n; v.open == 0 {
		delete(c.hosts, v.address)
	}
	if !v.asked {
		v.unasked += n
	}
}

// evictLocked evicts one connection if there are too many, or too many without a request from the newest's address. A client
// whose idle connection goes opens another one for its next scrape.
func (c *connections) evictLocked(newest net.Conn, now time.Time) {
	goes := c.open[newest]
	from := goes.host
	if c.total <= c.limit && from.unasked <= c.silent {
		return
	}
	victim, lowest, most := newest, answering+regular+1, 0
	for conn, v := range c.open {
		if v.evicted || conn == newest || c.total <= c.limit && (v.host != from || v.asked) {
			continue
		}
		rank, share, newer := v.rank(now), fairShare, 0
		if !v.asked {
			share = max(share, v.unasked)
		}
		if v.open > max(fairShare, c.limit/8) {
			rank = min(rank, slow)
		}
		if rank >= known {
			newer = goes.first.Compare(v.first)
		}
		if cmp.Or(rank-lowest, most-share, newer, cmp.Compare(v.changed, goes.changed)) < 0 {
			victim, goes, lowest, most = conn, v, rank, share
		}
	}
	goes.evicted = true
	c.tally(goes, -1)
	end(victim)
	c.evicted.Inc()
	c.warn.Do(func() {
		c.log.Warn("closing connections to make room for new ones", zap.Int("limit", c.limit), zap.Stringer("address", goes.address.Addr()))
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
