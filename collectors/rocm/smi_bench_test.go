//go:build linux && cgo

package rocm

import (
	"testing"

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
)

// BenchmarkReaders is one GPU's readings that the installed library can give,
// through it and from /sys.
func BenchmarkReaders(b *testing.B) {
	tree := rocmtest.NewTree(b, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(b, tree)
	b.Chdir(lib.Dir)
	files := sysfs.New(sysfs.Options{Root: tree.Root})
	gpus, _, err := files.Find(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	library, err := openSMI(b.Context(), smiOptions{Library: lib.Path, Sys: tree.Sys(), GPUs: gpus})
	if err != nil {
		b.Fatal(err)
	}
	defer library.Close()
	var wanted []raw.Reading
	h, err := library.Open(b.Context(), &gpus[0], everything())
	if err != nil {
		b.Fatal(err)
	}
	for i, has := range h.Has() {
		if has {
			wanted = append(wanted, everything()[i])
		}
	}
	if err := h.Close(); err != nil {
		b.Fatal(err)
	}
	for name, reader := range map[string]raw.Reader{"smi": library, "sysfs": files} {
		b.Run(name, func(b *testing.B) {
			h, err := reader.Open(b.Context(), &gpus[0], wanted)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			values, due := make([]float64, len(wanted)), make([]bool, len(wanted))
			for i := range due {
				due[i] = true
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Read(values, due); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(wanted)), "readings/op")
		})
	}
}
