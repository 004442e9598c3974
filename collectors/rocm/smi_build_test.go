//go:build linux && cgo

package rocm

import (
	"os"
	"path/filepath"
	"testing"

	"warpgauge/collectors/rocm/rocmtest/smitest"
)

func TestInspectSMI(t *testing.T) {
	f := func(abi smitest.ABI, asserts bool, want smiBuild) {
		t.Helper()
		got, err := inspectSMI(smitest.Compile(t, abi, asserts).New(t).Path)
		if err != nil || got != want {
			t.Errorf("ABI %d, asserts %v: %+v, %v, want %+v", abi, asserts, got, err, want)
		}
	}
	f(smitest.ROCm5, false, smiBuild{})
	f(smitest.ROCm5, true, smiBuild{asserts: true})
	f(smitest.ROCm6, false, smiBuild{threadLocks: true})
	f(smitest.ROCm7, true, smiBuild{asserts: true, threadLocks: true})

	// What cannot be read is guarded as if it were the worst.
	broken := filepath.Join(t.TempDir(), "librocm_smi64.so")
	if err := os.WriteFile(broken, []byte("\x7fELF and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{broken, broken + ".absent"} {
		if got, err := inspectSMI(path); err == nil || got != (smiBuild{asserts: true}) {
			t.Errorf("inspectSMI(%q) = %+v, %v, want the worst and an error", path, got, err)
		}
	}
}
