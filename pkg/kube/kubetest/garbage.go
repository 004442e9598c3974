package kubetest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Garbage listens on a socket at path and sends bytes to each client, like a program that is not a kubelet. Without
// bytes it sends nothing. Connections stay open until the test ends.
func Garbage(tb testing.TB, path string, bytes []byte) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		tb.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	var conns []net.Conn
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					tb.Errorf("accept: %v", err)
				}
				return
			}
			conns = append(conns, c)
			_, _ = c.Write(bytes) // who has hung up does not want them
		}
	})
	tb.Cleanup(func() {
		_ = l.Close() // ends Accept
		done.Wait()
		for _, c := range conns {
			_ = c.Close() // there is nothing to flush
		}
	})
}
