package field

import (
	"strings"
	"testing"
)

// TestWindows: facts of NVIDIA's header about the values that most lists have.
func TestWindows(t *testing.T) {
	f := func(name, library, want string) {
		t.Helper()
		var d *Descriptor
		for _, each := range All() {
			if each.Name == name {
				d = each
			}
		}
		for _, w := range Windows(d) {
			if w.Library == library {
				if !strings.Contains(w.Mean, want) || w.Evidence == "" {
					t.Errorf("%s of %s: %+v, want a mean over %q", library, name, w, want)
				}
				return
			}
		}
		t.Errorf("%s has no window of %s", library, name)
	}
	f("DCGM_FI_DEV_POWER_USAGE", "NVML", "1 s on Ampere")
	f("DCGM_FI_DEV_POWER_USAGE_INSTANT", "NVML", "momentary")
	f("DCGM_FI_DEV_GPU_UTIL", "NVML", "1/6 s to 1 s")
	f("DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM", "as NVML")
	f("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "NVML", "20 ms")
	f("DCGM_FI_PROF_SM_ACTIVE", "NVML", "two readings")
	f("DCGM_FI_PROF_SM_ACTIVE", "DCGM", "watch's interval")
	if d, _ := ByID(100); len(Windows(d)) != 0 {
		t.Error("the window of the SM clock is known, though no header says it")
	}
	for _, d := range All() { // a name in another unit has those of its reading
		of, ok := ByID(d.Of)
		if d.Factor != 0 && (!ok || len(Windows(d)) != len(Windows(of))) {
			t.Errorf("%s and %s have other windows", d.Name, of.Name)
		}
	}
	seen := map[string]bool{}
	for _, w := range windows {
		first, _ := ByID(w.first)
		if first == nil || w.last < w.first || w.Mean == "" && w.Update == "" {
			t.Errorf("window %+v", w)
		}
		if key := first.Name + w.Library; seen[key] {
			t.Errorf("%s of %s is there twice", first.Name, w.Library)
		} else {
			seen[key] = true
		}
	}
}
