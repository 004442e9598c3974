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

// connections ends connections that make no progress when there are more than the
// limit, so that clients that send or read nothing cannot keep others out. The victim
// is one of the address that has the most, of these the one whose state has changed
// longest ago: nothing has come, part of a header has come, it is kept alive without a
// request, or its request takes long. It cannot read or write any more, so that
// net/http closes it, now or when its handler returns. Until then it takes a slot of
// netutil.LimitListener, which has an eighth more than the limit: handlers that do not
// end are bounded as well.
//
// With TLS, the connections of one address that have sent no request yet have a lower
// limit: their handshakes take 1 ms of CPU or more each.
type connections struct {
	limit   int // MaxConnections
	evicted prometheus.Counter
	log     *zap.Logger

	mu      sync.Mutex
	open    map[net.Conn]*list.Element // nil for one that is being ended
	order   list.List                  // of *connection, the one whose state has changed longest ago first
	origins map[netip.Prefix]*origin   // of those in order
	silent  int                        // limit of connections of an address that have sent no request
	warned  time.Time
}

type connection struct {
	net.Conn
	address netip.Prefix
	active  bool // from the end of a request's header to the end of the answer
	asked   bool // a request has come
}

// origin counts the connections of an address.
type origin struct{ open, silent int }

// warnEvery bounds the log lines about connections that are ended for others.
const warnEvery = time.Minute

// maxHandshakes is the limit of TLS connections of one address without a request.
const maxHandshakes = 64

func newConnections(limit int, evicted prometheus.Counter, log *zap.Logger) *connections {
	return &connections{
		limit: limit, silent: limit, evicted: evicted, log: log,
		open: map[net.Conn]*list.Element{}, origins: map[netip.Prefix]*origin{},
	}
}

// useTLS lowers the limit of connections that have sent no request.
func (c *connections) useTLS() { c.silent = min(c.limit, maxHandshakes) }

// slots is the number of connections that the kernel hands to us.
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
	case state == http.StateActive: // its header had come before it was to end
		end(conn)
	default: // idle: net/http sets another deadline after this
		closeNow(conn)
	}
}

// removeLocked takes a connection out of the order.
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

// largestLocked returns the address with the most connections; of several with as
// many, that of the connection whose state has changed longest ago.
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

// evictLocked ends the first connection of an address, or the first that has sent no
// request. It stays in open until net/http has closed it.
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

// end makes all reading and writing fail. It closes nothing, which would free the slot
// while a handler is still running.
func end(conn net.Conn) {
	_ = conn.SetDeadline(time.Unix(1, 0)) // an error says that it is closed
}

func closeNow(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn() // a TLS connection would wait until its last message is sent
	}
	_ = conn.Close() // there is no use for an error
}

// closeWaiting closes the connections that wait for a request: http.Server.Shutdown
// gives those that have sent nothing, or half a header, five seconds.
func (c *connections) closeWaiting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil; e = e.Next() {
		if v, ok := e.Value.(*connection); ok && !v.active {
			closeNow(v.Conn)
		}
	}
}

// count is the number of open connections.
func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
