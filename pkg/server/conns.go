package server

import (
	"net"
	"sync"
	"time"
)

// conns counts the open connections of all listeners and keeps their number at
// a limit that clients who send or read nothing cannot exhaust. A connection
// either waits (nothing has come, part of a header has come, or it is kept
// alive) or is being served (from the first line of the handler to the last
// byte of the answer). When a newcomer finds the limit reached, the one that
// has waited longest is closed for it, where none waits the one that has been
// served longest, if longer than the grace; otherwise the newcomer is refused.
type conns struct {
	max   int
	grace time.Duration
	stats *stats

	mu      sync.Mutex
	waiting connList
	serving connList
}

func newConns(limit int, grace time.Duration, st *stats) *conns {
	return &conns{max: limit, grace: grace, stats: st}
}

// admit takes nc in. Where there is no place it answers nil, and nc is closed.
func (t *conns) admit(nc net.Conn) *conn {
	c := &conn{Conn: nc, table: t}
	t.mu.Lock()
	victim, ok := t.makeRoom()
	if ok {
		t.waiting.push(c)
	}
	t.mu.Unlock()

	if !ok {
		t.stats.rejected.Inc()
		abort(nc)
		return nil
	}
	if victim != nil {
		t.stats.evicted.Inc()
		abort(victim.Conn)
	}
	return c
}

// makeRoom takes one connection out if need be and reports whether there is a
// place now. The caller holds the lock, and closes the victim without it.
func (t *conns) makeRoom() (victim *conn, ok bool) {
	if t.waiting.n+t.serving.n < t.max {
		return nil, true
	}
	if c := t.waiting.oldest(); c != nil {
		t.waiting.remove(c)
		return c, true
	}
	if c := t.serving.oldest(); c != nil && time.Since(c.since) >= t.grace {
		t.serving.remove(c)
		return c, true
	}
	return nil, false
}

// serve notes that a request of c has reached the handler. c may be nil.
func (t *conns) serve(c *conn) { t.move(c, &t.serving) }

// wait notes that c begins a request or has ended its last. c may be nil.
func (t *conns) wait(c *conn) { t.move(c, &t.waiting) }

func (t *conns) move(c *conn, to *connList) {
	if c == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.list == nil {
		return // closed meanwhile
	}
	c.list.remove(c)
	to.push(c)
}

func (t *conns) leave(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.list != nil {
		c.list.remove(c)
	}
}

// closeWaiting ends all that wait: the drain, for which a connection that sends
// nothing must not be what it waits for.
func (t *conns) closeWaiting() {
	t.mu.Lock()
	var all []*conn
	for c := t.waiting.oldest(); c != nil; c = t.waiting.oldest() {
		t.waiting.remove(c)
		all = append(all, c)
	}
	t.mu.Unlock()
	for _, c := range all {
		_ = c.Conn.Close() // nobody is left to tell
	}
}

// len is the number of open connections.
func (t *conns) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting.n + t.serving.n
}

// abort closes at once and lets the kernel drop what it would still send, which
// a client that does not read could otherwise hold in memory.
func abort(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closing is what counts
	}
	_ = nc.Close() // nobody is left to tell
}
