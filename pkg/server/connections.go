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

// connections keeps slots free for new clients. netutil.LimitListener bounds how
// many connections a socket has, but alone it would let clients that send or read
// nothing hold all of them. So an eighth of the slots is spare: a newcomer that
// finds fewer free ends another connection. The first choice is one that waits for
// a request (nothing has come, part of a header has come, or it is kept alive), the
// one that has waited longest; if none waits, the one whose request has taken longest.
// It cannot read or write any more, so that net/http closes it. The slot is free when
// its handler has returned: connections whose logins wait in exporter-toolkit for their
// turn count until then, so goroutines are bounded as well.
type connections struct {
	limit   int // MaxConnections
	evicted prometheus.Counter
	log     *zap.Logger

	mu      sync.Mutex
	open    map[net.Conn]*list.Element
	waiting list.List // of net.Conn, the one that has waited longest first
	active  list.List // of net.Conn, the one whose request began first is first
	warned  time.Time
}

// warnEvery bounds the log lines about connections that are ended for others.
const warnEvery = time.Minute

func newConnections(limit int, evicted prometheus.Counter, log *zap.Logger) *connections {
	return &connections{limit: limit, evicted: evicted, log: log, open: map[net.Conn]*list.Element{}}
}

// enough is the number of connections above which spare slots are in use.
func (c *connections) enough() int { return c.limit - c.limit/8 - 1 }

// changed is the servers' ConnState hook. A connection is active from the end of a
// request's header to the end of the answer.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.open[conn]; e != nil {
		c.waiting.Remove(e) // a list leaves elements of other lists alone
		c.active.Remove(e)
	}
	switch state {
	case http.StateNew:
		if len(c.open) >= c.enough() {
			c.evictLocked()
		}
		c.open[conn] = c.waiting.PushBack(conn)
	case http.StateActive:
		c.open[conn] = c.active.PushBack(conn)
	case http.StateIdle:
		c.open[conn] = c.waiting.PushBack(conn)
		if len(c.open) >= c.limit { // newcomers may be waiting for a slot, unseen
			c.noteLocked()
			closeNow(c.waiting.Remove(c.open[conn])) // net/http sets the deadline after this
		}
	default: // closed, or taken over by a handler
		delete(c.open, conn)
	}
}

// evictLocked ends a connection. It stays in open until net/http has closed it.
func (c *connections) evictLocked() {
	from := &c.waiting
	if from.Len() == 0 {
		from = &c.active
	}
	if e := from.Front(); e != nil {
		c.noteLocked()
		conn, _ := from.Remove(e).(net.Conn)
		_ = conn.SetDeadline(time.Unix(1, 0)) // an error says that it is closed
	}
}

func (c *connections) noteLocked() {
	c.evicted.Inc()
	if now := time.Now(); now.Sub(c.warned) >= warnEvery {
		c.warned = now
		c.log.Warn("closing connections to make room for new ones", zap.Int("open", len(c.open)), zap.Int("limit", c.limit))
	}
}

func closeNow(element any) {
	conn, _ := element.(net.Conn)
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
	for e := c.waiting.Front(); e != nil; e = c.waiting.Front() {
		closeNow(c.waiting.Remove(e))
	}
}

// count is the number of open connections.
func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
