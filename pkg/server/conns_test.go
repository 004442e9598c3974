package server

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// sock is a connection that only knows whether it was closed.
type sock struct {
	net.Conn
	closed bool
}

func (s *sock) Close() error { s.closed = true; return nil }

func counterValue(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

type tableTest struct {
	*testing.T
	*conns
}

func newTable(t *testing.T, limit int) tableTest {
	t.Helper()
	return tableTest{t, newConns(limit, 5*time.Second, newStats(nil, nil))}
}

func (t tableTest) come() (*sock, *conn) {
	s := &sock{}
	return s, t.admit(s)
}

func (t tableTest) want(open int, evicted, rejected float64) {
	t.Helper()
	if n := t.len(); n != open {
		t.Errorf("%d connections open, want %d", n, open)
	}
	if got := counterValue(t.T, t.stats.evicted); got != evicted {
		t.Errorf("%v evicted, want %v", got, evicted)
	}
	if got := counterValue(t.T, t.stats.rejected); got != rejected {
		t.Errorf("%v rejected, want %v", got, rejected)
	}
}

func TestTheLongestWaitingMakesRoom(t *testing.T) {
	table := newTable(t, 3)
	a, ca := table.come()
	b, _ := table.come()
	c, cc := table.come()
	table.serve(ca) // a asks and is answered, so that b has waited longest
	table.wait(ca)
	table.serve(cc)

	_, d := table.come()
	if a.closed || !b.closed || c.closed || d == nil {
		t.Errorf("closed a %v, b %v, c %v, took the newcomer %v; want only b closed", a.closed, b.closed, c.closed, d != nil)
	}
	table.want(3, 1, 0)
	_, e := table.come()
	if !a.closed || c.closed || e == nil {
		t.Errorf("closed a %v, c %v; want a, which has waited longer than d", a.closed, c.closed)
	}
	table.want(3, 2, 0)
}

func TestTheLongestServedMakesRoomAfterAGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t, 2)
		a, ca := table.come()
		b, cb := table.come()
		table.serve(ca)
		time.Sleep(time.Second)
		table.serve(cb)
		time.Sleep(3999 * time.Millisecond)

		n, c := table.come()
		if c != nil || !n.closed || a.closed || b.closed {
			t.Errorf("within the grace: newcomer taken %v, closed %v; a closed %v, b closed %v", c != nil, n.closed, a.closed, b.closed)
		}
		table.want(2, 0, 1)
		time.Sleep(time.Millisecond)
		if _, c := table.come(); c == nil || !a.closed || b.closed {
			t.Errorf("after the grace: newcomer taken %v, a closed %v, b closed %v; want a in exchange", c != nil, a.closed, b.closed)
		}
		table.want(2, 1, 1)
	})
}

func TestClosingGivesThePlaceBackOnce(t *testing.T) {
	table := newTable(t, 1)
	a, ca := table.come()
	for range 3 {
		if err := ca.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !a.closed {
		t.Error("the connection below is open")
	}
	table.want(0, 0, 0)
	// What net/http says about a connection after its end changes nothing.
	table.serve(ca)
	table.wait(ca)
	table.want(0, 0, 0)

	_, cb := table.come()
	table.come() // evicts b
	if err := cb.Close(); err != nil {
		t.Fatal(err)
	}
	table.want(1, 1, 0)
}

func TestCloseWaiting(t *testing.T) {
	table := newTable(t, 5)
	a, _ := table.come()
	b, cb := table.come()
	c, _ := table.come()
	table.serve(cb)
	table.closeWaiting()
	if !a.closed || b.closed || !c.closed {
		t.Errorf("closed a %v, b %v, c %v; want those that wait", a.closed, b.closed, c.closed)
	}
	table.want(1, 0, 0)
}

func TestUnknownConnectionsAreIgnored(t *testing.T) {
	table := newTable(t, 1)
	table.serve(nil)
	table.wait(unwrap(&sock{}))
	table.want(0, 0, 0)
}

// The lists must stay whole whatever is taken out of them.
func TestConnListOrder(t *testing.T) {
	for remove := range 4 {
		var l connList
		cs := make([]*conn, 4)
		for i := range cs {
			cs[i] = &conn{}
			l.push(cs[i])
		}
		l.remove(cs[remove])
		var got []*conn
		for c := l.oldest(); c != nil; c = l.oldest() {
			got = append(got, c)
			l.remove(c)
		}
		want := append(append([]*conn{}, cs[:remove]...), cs[remove+1:]...)
		if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || l.n != 0 || l.last != nil {
			t.Errorf("after removing %d: order broken, %d left", remove, l.n)
		}
	}
}
