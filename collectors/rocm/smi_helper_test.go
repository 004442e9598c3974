//go:build linux && cgo

package rocm

import (
	"math"
	"slices"
	"testing"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/internal/testkit"
)

// boards returns the tree's GPUs as the collector finds them.
func boards(t *testing.T, tree *rocmtest.Tree) []sysfs.GPU {
	t.Helper()
	found := testkit.Get(sysfs.New(sysfs.Options{Root: tree.Root}).Find(t.Context()))(t)
	return found.GPUs
}

// started is a started library with a tree.
type started struct {
	*rocmSMI
	tree *rocmtest.Tree
}

func mustStart(t *testing.T, tree *rocmtest.Tree, library string) *started {
	t.Helper()
	s, err := startSMI(library)
	testkit.FatalIf(t, err != nil, "startSMI: %v", err)
	t.Cleanup(func() {
		err := s.close()
		testkit.ErrorIf(t, err != nil, "close: %v", err)
	})
	return &started{s, tree}
}

// files opens a GPU without the library.
func files(t *testing.T, tree *rocmtest.Tree, g sysfs.GPU, wanted ...sysfs.Reading) *sysfs.Handle {
	t.Helper()
	h := sysfs.New(sysfs.Options{Root: tree.Root}).Open(&g, wanted)
	t.Cleanup(h.Close)
	return h
}

// reader opens a GPU that the library lists.
func (s *started) reader(t *testing.T, g sysfs.GPU, wanted ...sysfs.Reading) *smiReader {
	t.Helper()
	r, ok := s.open(files(t, s.tree, g, wanted...), &g, wanted)
	testkit.FatalIf(t, !ok, "the library does not list %s", g.PCI)
	return r
}

// asked reports for each wanted reading whether it comes from the library.
func (r *smiReader) asked() []bool {
	asked := make([]bool, len(r.rest))
	for _, c := range r.cells {
		asked[c.cell] = true
	}
	return asked
}

// readAll reads all readings of r.
func readAll(r *smiReader) ([]float64, error) {
	n := len(r.rest)
	values, due := make([]float64, n), slices.Repeat([]bool{true}, n)
	for i := range values {
		values[i] = -1
	}
	return values, r.Read(values, due)
}

func mustRead(t *testing.T, r *smiReader) []float64 {
	t.Helper()
	v, err := readAll(r)
	testkit.FatalIf(t, err != nil, "Read: %v", err)
	return v
}

// same compares readings: NaN is NaN.
func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// everything returns all readings that a library can supply.
func everything() []sysfs.Reading {
	var all []sysfs.Reading
	for k := range sysfs.Kinds {
		for i := range sysfs.Blocks {
			if _, ok := smiAskFor(sysfs.Reading{Kind: k, Index: i}); ok {
				all = append(all, sysfs.Reading{Kind: k, Index: i})
			}
		}
	}
	return all
}

func radeons(t *testing.T, n int) *rocmtest.Tree {
	t.Helper()
	return rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: n})
}

// fakeFor returns a fake with the tree's GPUs: index i is GPU i.
func fakeFor(t *testing.T, tree *rocmtest.Tree, abi smitest.ABI, without ...string) *smitest.Fake {
	t.Helper()
	f := smitest.Compile(t, abi).New(t, without...)
	f.SetDevices(t, tree)
	return f
}

func smiStatus(code int32) error { return statusError{API: &smiAPI, Code: code} }
