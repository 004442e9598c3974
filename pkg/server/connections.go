package server

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
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

	mu      sync.Mutex
	open    map[net.Conn]*list.Element // nil during its eviction
	order   list.List                  // of *connection, the longest unchanged state first
	origins map[netip.Prefix]*origin   // addresses of the connections in order
	silent  int                        // limit of connections without a request per address
	warned  time.Time
}

type connection struct {
	net.Conn
	address netip.Prefix
	active  bool // from the end of a request's header to the end of its answer
	asked   bool // a request was received
}

// origin counts the connections of an address.
type origin struct{ open, silent int }

// warnEvery bounds the log lines about evicted connections.
const warnEvery = time.Minute

// maxHandshakes is the maximum number of TLS connections without a request per address.
const maxHandshakes = 64

func newConnections(limit int, evicted prometheus.Counter, log *zap.Logger) *connections {
	return &connections{
		limit: limit, silent: limit, evicted: evicted, log: log,
		open: map[net.Conn]*list.Element{}, origins: map[netip.Prefix]*origin{},
	}
}

// useTLS lowers the limit of connections without a request.
func (c *connections) useTLS() { c.silent = min(c.limit, maxHandshakes) }

// slots returns the maximum number of accepted connections.
func (c *connections) slots() int { return c.limit + c.limit/8 + 1 }

// changed is the servers' ConnState hook.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.open[conn]
	switch {
	case state == http.StateNew:
		v := &connection{Conn: conn, address: addressOf(conn.RemoteAddr().String())}
		o := c.origins[v.address]
		if o == nil {
			o = &origin{}
			c.origins[v.address] = o
		}
		o.open++
		o.silent++
		c.open[conn] = c.order.PushBack(v)
		switch {
		case c.order.Len() > c.limit:
			c.evictLocked(c.largestLocked(), false)
		case o.silent > c.silent:
			c.evictLocked(v.address, true)
		}
	case state == http.StateClosed || state == http.StateHijacked:
		if e != nil {
			c.removeLocked(e)
		}
		delete(c.open, conn)
	case e != nil:
		if v, ok := e.Value.(*connection); ok {
			v.active = state == http.StateActive
			if !v.asked {
				v.asked = true
				c.origins[v.address].silent--
			}
		}
		c.order.MoveToBack(e)
	case state == http.StateActive: // its header was received before the eviction
		end(conn)
	default: // idle: net/http sets another deadline afterwards
		closeNow(conn)
	}
}

func (c *connections) removeLocked(e *list.Element) {
	v, ok := c.order.Remove(e).(*connection)
	if !ok {
		return
	}
	o := c.origins[v.address]
	o.open--
	if !v.asked {
		o.silent--
	}
	if o.open == 0 {
		delete(c.origins, v.address)
	}
}

// largestLocked returns the address with the most connections. In a tie, the address with the longest unchanged
// connection wins.
func (c *connections) largestLocked() netip.Prefix {
	most := 0
	for _, o := range c.origins {
		most = max(most, o.open)
	}
	for e := c.order.Front(); e != nil; e = e.Next() {
		if v, ok := e.Value.(*connection); ok && c.origins[v.address].open == most {
			return v.address
		}
	}
	return netip.Prefix{}
}

// evictLocked evicts the first connection of an address, or its first without a request. The connection stays in open
// until net/http has closed it.
func (c *connections) evictLocked(address netip.Prefix, silent bool) {
	for e := c.order.Front(); e != nil; e = e.Next() {
		v, ok := e.Value.(*connection)
		if !ok || v.address != address || silent && v.asked {
			continue
		}
		c.removeLocked(e)
		c.open[v.Conn] = nil
		end(v.Conn)
		c.evicted.Inc()
		break
	}
	if now := time.Now(); now.Sub(c.warned) >= warnEvery {
		c.warned = now
		c.log.Warn("closing connections to make room for new ones",
			zap.Int("limit", c.limit), zap.Stringer("address", address.Addr()))
	}
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
	for e := c.order.Front(); e != nil; e = e.Next() {
		if v, ok := e.Value.(*connection); ok && !v.active {
			closeNow(v.Conn)
		}
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
