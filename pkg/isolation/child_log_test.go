package isolation

import (
	"os"
	"syscall"
	"testing"
	"time"

	"warpgauge/pkg/eventually"
)

// TestTheLastFlushWaits for entries that another has taken and not sent yet: the
// process ends after it.
func TestTheLastFlushWaits(t *testing.T) {
	parent, child := pair(t)
	l := newLogSender(0)
	l.push(logEntry{text: "not in use"})
	flush := func() chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.flush(child)
		}()
		return done
	}
	child.mu.Lock() // nothing leaves
	first := flush()
	eventually.True(t, "the first to take the entry", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 0
	})
	last := flush()
	select {
	case <-last:
		t.Error("the last flush has returned, and the entry is not sent")
	case <-time.After(20 * time.Millisecond): // there is nothing to wait for where it works
	}
	child.mu.Unlock()
	<-first
	<-last
	var m logEntry
	k, payload, err := parent.next()
	if err != nil || k != kindLog {
		t.Fatalf("message %d, %v", k, err)
	}
	if err := unmarshal(payload, &m); err != nil || m.text != "not in use" {
		t.Errorf("%q, %v", m.text, err)
	}
}

// pair is both ends of a control channel.
func pair(t *testing.T) (parent, child *conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*conn, 2)
	for i, fd := range fds {
		if ends[i], err = newConn(os.NewFile(uintptr(fd), "control")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ends[i].unix.Close() })
	}
	return ends[0].parentEnd(), ends[1].childEnd()
}
