//go:build linux && cgo

package rocm

import (
	"context"
	"errors"
	"testing"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/pkg/collector"
)

const temperature = "DCGM_FI_DEV_GPU_TEMP, gauge, t"

func temperatureOf(t *testing.T, o *opened, g *rocmtest.GPU) float64 {
	t.Helper()
	o.sample()
	v, ok := o.value(uuidOf(g), "DCGM_FI_DEV_GPU_TEMP", "")
	if !ok {
		t.Fatalf("%s has no temperature", g.PCI)
	}
	return v
}

// A library that fails while it is in use is left for /sys, by way of another
// Open; a collector beside it that was opened earlier asks for one.
func TestLibraryThatFailsIsLeft(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	fake.Set(t, "rsmi_dev_temp_metric_get", "ok 77000")
	o := Options{Root: tree.Root, Library: fake.Path, Libraries: new(Libraries)}
	first := mustOpen(t, o, list(t, temperature))
	if v := temperatureOf(t, first, tree.GPUs[0]); v != 77 {
		t.Fatalf("%v, want 77, which is what the library says", v)
	}
	tree.GPUs[1].Vanish(t)
	fake.Set(t, "rsmi_init", "status 8")
	second := mustOpen(t, o, list(t, temperature))
	if v := temperatureOf(t, second, tree.GPUs[0]); v != float64(tree.GPUs[0].State.EdgeC) {
		t.Errorf("%v, want %d, which is what /sys says", v, tree.GPUs[0].State.EdgeC)
	}
	row := first.rows[0]
	due := make([]bool, len(row))
	due[0] = true
	if err := first.sources[0].Sample(row, due); !errors.Is(err, collector.ErrColumnsChanged) {
		t.Errorf("Sample = %v, want ErrColumnsChanged", err)
	}
}

// Where rsmi_init does not return, Open ends with its context and the next one
// reads /sys.
func TestOpenWithAnInitThatHangs(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	fake := fakeFor(t, tree, smitest.Compile(t, smitest.ROCm7, false))
	fake.Set(t, "rsmi_init", "hang")
	o := Options{Root: tree.Root, Library: fake.Path, Libraries: new(Libraries)}
	c := New(o)
	if _, err := c.Open(untilInit(t, fake, 1), list(t, temperature)); !errors.Is(err, context.Canceled) {
		t.Errorf("Open = %v, want the end of its context", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	s := o.Libraries.of[fake.Path]
	s.mu.Lock()
	s.patience = 0
	s.mu.Unlock()
	opened := mustOpen(t, o, list(t, temperature))
	if v := temperatureOf(t, opened, tree.GPUs[0]); v != float64(tree.GPUs[0].State.EdgeC) {
		t.Errorf("%v, want %d, which is what /sys says", v, tree.GPUs[0].State.EdgeC)
	}
	if n := fake.Count(t, "rsmi_init"); n != 1 {
		t.Errorf("rsmi_init called %d times, want once", n)
	}
	s.mu.Lock()
	j := s.starting
	s.mu.Unlock()
	fake.Release(t)
	<-j.done
}
