package server

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// connections ends connections that make no progress when there are more than the
// limit, so that clients that send or read nothing cannot keep others out. The victim
// is the one whose state has changed longest ago: nothing has come, part of a header
// has come, it is kept alive without a request, or its request takes long. It cannot
// read or write any more, so that net/http closes it, now or when its handler returns.
// Until then it takes a slot of netutil.LimitListener, which has an eighth more than
// the limit: connections whose logins queue in exporter-toolkit are bounded as well.
type connections struct {
	limit   int // MaxConnections
	evicted prometheus.Counter
	log     *zap.Logger

	mu     sync.Mutex
	open   map[net.Conn]*list.Element // nil for one that is being ended
	order  list.List                  // of *connection, the one whose state has changed longest ago first
	warned time.Time
}

type connection struct {
	net.Conn
	active bool // from the end of a request's header to the end of the answer
}

// warnEvery bounds the log lines about connections that are ended for others.
const warnEvery = time.Minute

func newConnections(limit int, evicted prometheus.Counter, log *zap.Logger) *connections {
	return &connections{limit: limit, evicted: evicted, log: log, open: map[net.Conn]*list.Element{}}
}

// slots is the number of connections that the kernel hands to us.
func (c *connections) slots() int { return c.limit + c.limit/8 + 1 }

// changed is the servers' ConnState hook.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.open[conn]
	switch {
	case state == http.StateNew:
		c.open[conn] = c.order.PushBack(&connection{Conn: conn})
		if c.order.Len() > c.limit {
			c.evictLocked()
		}
	case state == http.StateClosed || state == http.StateHijacked:
		if e != nil {
			c.order.Remove(e)
		}
		delete(c.open, conn)
	case e != nil:
		if v, ok := e.Value.(*connection); ok {
			v.active = state == http.StateActive
		}
		c.order.MoveToBack(e)
	case state == http.StateActive: // its header had come before it was to end
		end(conn)
	default: // idle: net/http sets another deadline after this
		closeNow(conn)
	}
}

// evictLocked ends the first connection. It stays in open until net/http has closed it.
func (c *connections) evictLocked() {
	v, ok := c.order.Remove(c.order.Front()).(*connection)
	if !ok {
		return
	}
	c.open[v.Conn] = nil
	end(v.Conn)
	c.evicted.Inc()
	if now := time.Now(); now.Sub(c.warned) >= warnEvery {
		c.warned = now
		c.log.Warn("closing connections to make room for new ones", zap.Int("limit", c.limit))
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
