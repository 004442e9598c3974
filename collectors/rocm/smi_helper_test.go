//go:build linux && cgo

package rocm

import (
	"math"
	"path/filepath"
	"testing"

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
)

// gpusOf are the tree's GPUs as far as the library's reader looks at them.
func gpusOf(tree *rocmtest.Tree) []raw.GPU {
	var gpus []raw.GPU
	for _, g := range tree.GPUs {
		gpus = append(gpus, raw.GPU{PCI: g.PCI, Card: g.Card, Render: g.Render, Path: filepath.Clean(g.Path(""))})
	}
	return gpus
}

func optionsFor(tree *rocmtest.Tree, library string) smiOptions {
	return smiOptions{Library: library, Sys: tree.Sys(), GPUs: gpusOf(tree), Shared: new(Libraries)}
}

func mustOpenSMI(t *testing.T, o smiOptions) raw.Reader {
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
	return r
}

func mustHandle(t *testing.T, r raw.Reader, g raw.GPU, wanted []raw.Reading) raw.Handle {
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

// readAll reads everything once.
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

// same compares readings: NaN is NaN.
func same(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*math.Abs(b)
}

// allReadings is everything that a library can be asked for.
func allReadings() []raw.Reading {
	var all []raw.Reading
	for k := range raw.Kinds {
		for i := range uint8(raw.Blocks) {
			if _, ok := smiReadingOf(raw.Reading{Kind: k, Index: i}); ok {
				all = append(all, raw.Reading{Kind: k, Index: i})
			}
		}
	}
	return all
}

// fakeFor is a fake whose devices are those of the tree, index i the GPU i.
func fakeFor(t *testing.T, tree *rocmtest.Tree, b smitest.Built, without ...string) *smitest.Fake {
	t.Helper()
	f := b.New(t, without...)
	f.SetDevices(t, tree)
	return f
}
