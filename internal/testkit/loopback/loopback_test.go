package loopback

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestReserve(t *testing.T) {
	p, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		if c, err := net.Dial("tcp", p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connect without a listener: %v, %v, want refused", c, err)
		}
		l, err := net.Listen("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		if l2, err := net.Listen("tcp", p.Address()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("second listener: %v, %v, want in use", l2, err)
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		// The server ends first, so its port waits for late packets.
		served.Close()
		c.Close()
		l.Close()
	}
}
