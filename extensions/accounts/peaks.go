package accounts

import "strings"

// peaks holds the clock, MHz, behind a board's published tensor throughput, by a part of the model's name: dense FP16 =
// SMs × FLOP per clock and SM × clock. H100 and H200 SXM: 132 × 4096 × 1,830 MHz = 989 TFLOP/s; A100: 108 × 2048 × 1,410 MHz = 312.
// Boards with PCIe and NVL have other clocks, but A100.
var peaks = []struct {
	model string
	clock float64
}{{"A100", 1410}, {"PCIe", unknown}, {"NVL", unknown}, {"H100", 1830}, {"H200", 1830}}

// peakClock returns a model's clock, NaN if it is unknown.
func peakClock(model string) float64 {
	for _, p := range peaks {
		if strings.Contains(model, p.model) {
			return p.clock
		}
	}
	return unknown
}
