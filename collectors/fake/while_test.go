package fake

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// switchFile is a file that makes a fault begin and end.
func switchFile(t *testing.T) (path string, on, off func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fault")
	on = func() {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	off = func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	return path, on, off
}

func TestWhile(t *testing.T) {
	path, on, off := switchFile(t)
	n := scripted(t, list(t, "DCGM_FI_DEV_GPU_TEMP"), Fault{Kind: Lost, While: path, GPUs: index(2)})
	for range 2 {
		if err := sampleError(n, 2); err != nil {
			t.Fatalf("without the file: %v", err)
		}
		on()
		if err := sampleError(n, 2); !errors.Is(err, collector.ErrDeviceLost) {
			t.Errorf("with the file: got %v, want %v", err, collector.ErrDeviceLost)
		}
		if err := sampleError(n, 1); err != nil {
			t.Errorf("another GPU: %v", err)
		}
		off()
	}
}

func TestWhileHang(t *testing.T) {
	path, on, off := switchFile(t)
	n := scripted(t, list(t, "DCGM_FI_DEV_GPU_TEMP"), Fault{Kind: Hang, While: path, GPUs: index(2)})
	on()
	done := make(chan error, 1)
	go func() { done <- sampleError(n, 2) }()
	select {
	case err := <-done:
		t.Fatalf("returned while the file was there: %v", err)
	case <-time.After(50 * time.Millisecond): // more proves nothing
	}
	off()
	if err := <-done; err != nil {
		t.Errorf("after the file was removed: %v", err)
	}
}

// TestWhileXID: it happens once, for who was there before it.
func TestWhileXID(t *testing.T) {
	path, on, _ := switchFile(t)
	w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{
		{Kind: XID, At: time.Hour, GPUs: index(2), XID: 31}, {Kind: XID, While: path, GPUs: index(2), XID: 79},
	}}})
	l := list(t, "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_XID_ERRORS")
	n := openNode(t, w, l)
	read := func(n *node, event, last float64) {
		t.Helper()
		got := n.read(2, 0)
		same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
		if !same(got[field.XIDEvent], event) || !same(got[field.XIDErrors], last) {
			t.Errorf("event %v and last XID %v, want %v and %v", got[field.XIDEvent], got[field.XIDErrors], event, last)
		}
	}
	read(n, math.NaN(), 0)
	on()
	read(n, 79, 79)
	read(n, math.NaN(), 79)
	read(openNode(t, w, l), math.NaN(), 79)
}

// TestWhileOpenFails: Open looks, too.
func TestWhileOpenFails(t *testing.T) {
	path, on, off := switchFile(t)
	w := newWorld(t, Options{Spec: &Spec{Faults: []Fault{{Kind: OpenFails, While: path}}}})
	on()
	l := list(t, "DCGM_FI_DEV_GPU_TEMP")
	if _, err := w.Collector().Open(t.Context(), l); !errors.Is(err, collector.ErrNotLoaded) {
		t.Errorf("open with the file: got %v, want %v", err, collector.ErrNotLoaded)
	}
	off()
	openNode(t, w, l)
}
