//go:build linux && cgo

package rocm

import (
	"testing"

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
	found, err := sysfs.New(sysfs.Options{Root: tree.Root}).Find(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	g := &found.GPUs[0]
	library, err := startSMI(lib.Path)
	if err != nil {
		b.Fatal(err)
	}
	defer library.close()
	var wanted []sysfs.Reading
	all := everything()
	probe := sysfs.New(sysfs.Options{Root: tree.Root}).Open(g, all)
	for i, has := range probe.Has() {
		if has {
			wanted = append(wanted, all[i])
		}
	}
	_ = probe.Close()
	files := sysfs.New(sysfs.Options{Root: tree.Root}).Open(g, wanted)
	defer files.Close()
	r, _ := library.open(sysfs.New(sysfs.Options{Root: tree.Root}).Open(g, wanted), g, wanted)
	defer r.Close()
	for name, h := range map[string]reader{"smi": r, "sysfs": files} {
		b.Run(name, func(b *testing.B) {
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
