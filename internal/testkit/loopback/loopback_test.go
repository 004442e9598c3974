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

// A program that asks for any port never gets one that is kept. As many ports are kept as to
// make it sure that some of the others would have been given one.
func TestNobodyElseGetsIt(t *testing.T) {
	kept := map[string]bool{}
	for range 400 {
		p, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if kept[p.Address()] {
			t.Fatalf("%s is kept twice", p.Address())
		}
		kept[p.Address()] = true
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for range 4000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if kept[l.Addr().String()] {
			t.Errorf("a listener was given %s", l.Addr())
		}
		c, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		served, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		served.Close()
		if kept[c.LocalAddr().String()] {
			t.Errorf("a connection was given %s", c.LocalAddr())
		}
	}
}
