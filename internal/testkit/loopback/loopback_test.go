package loopback

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestReserve checks that a reserved port refuses connections until its server listens, also after an earlier server
// that closed its connections first, so that the port waits for late packets.
func TestReserve(t *testing.T) {
	p, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if c, err := net.Dial("tcp", p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connect without a listener: %v, %v, want refused", c, err)
		}
		l, err := net.Listen("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", p.Address())
		served, err2 := l.Accept()
		if err := errors.Join(err, err2, served.Close(), c.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
