package fake

import (
	"testing"
	"time"
)

// What these faults do to a process is seen on the whole program (cmd/warpgauge/e2e_isolation_test.go).

// TestOnce: a child that was started after the fault began is spared.
func TestOnce(t *testing.T) {
	start := time.Now().Add(-time.Minute)
	for _, tt := range []struct {
		fault Fault
		hit   bool
	}{
		{Fault{Kind: Crash, At: 30 * time.Second}, true},
		{Fault{Kind: Crash, At: 30 * time.Second, Once: true}, false},
		{Fault{Kind: Crash, At: 59 * time.Second, For: 500 * time.Millisecond}, false},
		{Fault{Kind: Crash, At: 59 * time.Second, For: time.Hour}, true},
		{Fault{Kind: Crash, At: 2 * time.Minute}, false},
	} {
		w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{tt.fault}}, Isolated: true, Start: start})
		if got := w.process.hit((*w.faults.Load())[0], w.elapsed()); got != tt.hit {
			t.Errorf("%+v in a child started after a minute: hit %v, want %v", tt.fault, got, tt.hit)
		}
	}
	path, on, off := switchFile(t)
	f := &fault{Fault: Fault{Once: true, While: path}, start: time.Now().Add(-time.Hour)}
	on()
	for born, hit := range map[time.Duration]bool{30 * time.Minute: true, 90 * time.Minute: false} {
		if got := newProcess(born, 1).hit(f, 2*time.Hour); got != hit {
			t.Errorf("the file was made after an hour, the child started after %v: hit %v, want %v", born, got, hit)
		}
	}
	off()
	if newProcess(0, 1).hit(f, 2*time.Hour) {
		t.Error("hit without the file")
	}
}

// TestLeak: memory that is never freed.
func TestLeak(t *testing.T) {
	now := time.Now()
	w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{{Kind: Leak, At: time.Second, Rate: 8}}}, Isolated: true, Now: func() time.Time { return now }})
	n := openNode(t, w, list(t, temperature))
	for second, want := range []int{0, 0, 8, 16, 24} {
		n.read(0, 0)
		if got := len(w.process.leaked); got != want {
			t.Errorf("second %d: %d MiB leaked, want %d", second, got, want)
		}
		now = now.Add(time.Second)
	}
}
