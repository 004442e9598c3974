package rocmtest

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"warpgauge/internal/testkit"
)

// TestMetricsSizes checks the files' sizes against the kernel's structures in a C compiler's layout.
func TestMetricsSizes(t *testing.T) {
	for revision, want := range map[string]int{
		"1.0": 80, "1.1": 96, "1.2": 104, "1.3": 120, "1.4": 288, "1.5": 360, "1.6": 1664, "1.7": 2208, "1.8": 3872, "1.9": 1150,
		"2.0": 120, "2.1": 120, "2.2": 128, "2.3": 152, "2.4": 168, "3.0": 264,
	} {
		tr := NewTree(t, Options{Model: MI300X, GPUs: 1, Metrics: revision})
		b := testkit.Get(os.ReadFile(tr.GPUs[0].Path("gpu_metrics")))(t)
		if len(b) != want || int(binary.LittleEndian.Uint16(b)) != want || fmt.Sprintf("%d.%d", b[2], b[3]) != revision {
			t.Errorf("revision %s: %d bytes, header % x, want %d", revision, len(b), b[:4], want)
		}
	}
	_, err := Build(t.TempDir(), Options{Metrics: "1.10"})
	testkit.ErrorIf(t, err == nil, "no error for a revision that cannot be written")
}
