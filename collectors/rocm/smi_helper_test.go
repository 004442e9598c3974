//go:build linux && cgo

package rocm

import (
	"math"
	"testing"

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
)

// boards are the tree's GPUs as the collector finds them.
func boards(t *testing.T, tree *rocmtest.Tree) []raw.GPU {
	t.Helper()
	gpus, _, err := sysfs.New(sysfs.Options{Root: tree.Root}).Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

func smiOptionsFor(t *testing.T, tree *rocmtest.Tree, library string) smiOptions {
	t.Helper()
	return smiOptions{Library: library, Sys: tree.Sys(), GPUs: boards(t, tree), Shared: new(Libraries)}
}

func mustOpenSMI(t *testing.T, o smiOptions) *smiReader {
	t.Helper()
	r, err := openSMI(t.Context(), o)
	if err != nil {
		t.Fatalf("openSMI: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r.(*smiReader)
}

func mustHandle(t *testing.T, r raw.Reader, g raw.GPU, wanted ...raw.Reading) raw.Handle {
	t.Helper()
	h, err := r.Open(t.Context(), &g, wanted)
	if err != nil {
		t.Fatalf("Open(%s): %v", g.PCI, err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return h
}

// readAll reads everything that h was opened for.
func readAll(h raw.Handle) ([]float64, error) {
	n := len(h.Has())
	values, due := make([]float64, n), make([]bool, n)
	for i := range due {
		values[i], due[i] = -1, true
	}
	return values, h.Read(values, due)
}

func mustRead(t *testing.T, h raw.Handle) []float64 {
	t.Helper()
	v, err := readAll(h)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return v
}

// same compares readings: NaN is NaN, and one reader divides where the other
// multiplies.
func same(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-12*math.Abs(b)
}

// everything is what a library can be asked for.
func everything() []raw.Reading {
	var all []raw.Reading
	for k := range raw.Kinds {
		for i := range raw.Blocks {
			if _, ok := smiReadingOf(raw.Reading{Kind: k, Index: i}); ok {
				all = append(all, raw.Reading{Kind: k, Index: i})
			}
		}
	}
	return all
}

// fakeFor is a fake whose devices are those of the tree: index i is GPU i.
func fakeFor(t *testing.T, tree *rocmtest.Tree, b smitest.Built, without ...string) *smitest.Fake {
	t.Helper()
	f := b.New(t, without...)
	f.SetDevices(t, tree)
	return f
}
