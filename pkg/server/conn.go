package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// conn is one accepted connection. Its links belong to the table's lock.
type conn struct {
	net.Conn
	table *conns

	list       *connList // nil once closed
	since      time.Time // when it came into the list
	prev, next *conn
}

// Close gives the place back. It can be called again.
func (c *conn) Close() error {
	c.table.leave(c)
	return c.Conn.Close()
}

// CloseWrite lets net/http end its side first, so that a client which still
// sends gets to read the answer.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// connList is a list in order of arrival, linked through the connections so that
// a request moves one without allocating.
type connList struct {
	first, last *conn
	n           int
}

func (l *connList) oldest() *conn { return l.first }

// push stamps c and makes it the youngest.
func (l *connList) push(c *conn) {
	c.list, c.since = l, time.Now()
	c.prev, c.next = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
	l.n++
}

func (l *connList) remove(c *conn) {
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.list, c.prev, c.next = nil, nil, nil
	l.n--
}

// listener hands out only connections that the table has admitted.
type listener struct {
	net.Listener
	conns *conns
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err // as it is: net/http looks whether it is temporary
		}
		if c := l.conns.admit(nc); c != nil {
			return c, nil
		}
	}
}

type connKey struct{}

// withConn is the server's ConnContext: handlers find their connection by it.
func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, unwrap(nc))
}

func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// connState is the server's hook. A connection that becomes active has sent a
// request's header. It keeps waiting, as the youngest, until the handler is
// reached: before that comes exporter-toolkit's authentication, which is slow.
func (t *conns) connState(nc net.Conn, state http.ConnState) {
	if state == http.StateActive || state == http.StateIdle {
		t.wait(unwrap(nc))
	}
}

// unwrap finds the accepted connection below TLS.
func unwrap(nc net.Conn) *conn {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}
