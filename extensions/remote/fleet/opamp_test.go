package fleet

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A WebSocket that takes nothing, says nothing, or sends without end is ended; http.Server's limits hold before.
func TestLimitedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := func() (*limitedConn, net.Conn) {
			ours, theirs := net.Pipe()
			t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
			l := &limitedConn{Conn: ours}
			l.begin()
			return l, theirs
		}
		within := func(what string, most time.Duration, f func() error) {
			t.Helper()
			began := time.Now()
			var timeout net.Error
			if err := f(); !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(began) > most {
				t.Errorf("%s: error %v after %v", what, err, time.Since(began))
			}
		}
		slow, _ := pair()
		within("a client that takes nothing", messageWithin, func() error { _, err := slow.Write([]byte("x")); return err })
		silent, _ := pair()
		within("a client that says nothing", idleAgent, func() error { _, err := silent.Read(make([]byte, 1)); return err })

		flood, client := pair()
		go func() {
			for b := make([]byte, 64<<10); ; {
				if _, err := client.Write(b); err != nil {
					return
				}
			}
		}()
		read, b := 0, make([]byte, 4<<10)
		for {
			n, err := flood.Read(b)
			if read += n; err != nil {
				if !errors.Is(err, errTooMuch) {
					t.Errorf("error %v", err)
				}
				break
			}
		}
		if read > maxBetween+len(b) {
			t.Errorf("%d bytes were read of a message that may have %d", read, maxMessage)
		}
		flood.message()
		if _, err := flood.Read(b); err != nil {
			t.Errorf("after a message: %v", err)
		}

		ours, theirs := net.Pipe()
		plain := &limitedConn{Conn: ours}
		go func() { time.Sleep(2 * idleAgent); _, _ = theirs.Write([]byte("x")) }()
		if _, err := io.ReadFull(plain, b[:1]); err != nil {
			t.Errorf("before it is a WebSocket: %v", err)
		}
		_, _ = ours.Close(), theirs.Close()
	})
}
