package gpumetrics_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"warpgauge/collectors/rocm/internal/gpumetrics"
)

// Files of a third hand: a shell script, written from the same structures of the
// kernel before decoder and encoder were. What it put into each is known from the
// text files that it wrote at the same moment.
func TestDecodeAnotherHand(t *testing.T) {
	type values map[reading]float64
	f := func(name string, want values) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		m := new(gpumetrics.Metrics)
		if err := gpumetrics.New().Decode(b, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for r, w := range want {
			if got := m.Float(r.f, r.i); got != w && !(math.IsNaN(got) && math.IsNaN(w)) {
				t.Errorf("%s: field %d[%d] = %v, want %v", name, r.f, r.i, got, w)
			}
		}
	}
	nan := math.NaN()
	f("mi250x-1.3.bin", values{
		{gpumetrics.TemperatureEdge, 0}: 53, {gpumetrics.TemperatureHotspot, 0}: 64, {gpumetrics.TemperatureMem, 0}: 60,
		{gpumetrics.TemperatureHBM, 0}: 60, {gpumetrics.TemperatureHBM, 3}: 60, {gpumetrics.TemperatureVRSoc, 0}: 44,
		{gpumetrics.AverageGfxActivity, 0}: 60, {gpumetrics.AverageUmcActivity, 0}: 36, {gpumetrics.AverageMMActivity, 0}: 0,
		{gpumetrics.AverageSocketPower, 0}: 366, {gpumetrics.EnergyByASIC, 0}: 1000000, {gpumetrics.CurrentGfxclk, 0}: 1220,
		{gpumetrics.CurrentSocclk, 0}: 1090, {gpumetrics.CurrentUclk, 0}: 1600, {gpumetrics.PCIeLinkWidth, 0}: 16,
		{gpumetrics.PCIeLinkSpeed, 0}: 16, {gpumetrics.VoltageGfx, 0}: 800, {gpumetrics.IndepThrottleStatus, 0}: 0,
		{gpumetrics.CurrentSocketPower, 0}: nan, {gpumetrics.XGMIReadAcc, 0}: nan,
	})
	f("mi300x-1.5.bin", values{
		{gpumetrics.TemperatureEdge, 0}: nan, {gpumetrics.TemperatureHotspot, 0}: 48, {gpumetrics.TemperatureMem, 0}: 48,
		{gpumetrics.CurrentSocketPower, 0}: 220, {gpumetrics.AverageGfxActivity, 0}: 20, {gpumetrics.AverageUmcActivity, 0}: 12,
		{gpumetrics.VCNActivity, 0}: 20, {gpumetrics.VCNActivity, 1}: nan, {gpumetrics.JPEGActivity, 31}: nan,
		{gpumetrics.EnergyAccumulator, 0}: 1000000, {gpumetrics.PCIeLinkSpeed, 0}: 32, {gpumetrics.XGMILinkSpeed, 0}: 32,
		{gpumetrics.XGMIReadAcc, 0}: 20000, {gpumetrics.XGMIReadAcc, 6}: 20000, {gpumetrics.XGMIWriteAcc, 0}: 10000,
		{gpumetrics.XGMIWriteAcc, 7}: 0, {gpumetrics.CurrentGfxclk, 7}: 525, {gpumetrics.CurrentSocclk, 3}: 1090,
		{gpumetrics.CurrentVclk0, 0}: 29, {gpumetrics.CurrentDclk0, 0}: 22, {gpumetrics.CurrentUclk, 0}: 1300,
	})
	f("mi300x-1.7.bin", values{ // in QPX mode: four partitions of two XCCs
		{gpumetrics.TemperatureHotspot, 0}: 67, {gpumetrics.TemperatureMem, 0}: 62, {gpumetrics.CurrentSocketPower, 0}: 538,
		{gpumetrics.AverageGfxActivity, 0}: 69, {gpumetrics.AverageUmcActivity, 0}: 41, {gpumetrics.MemMaxBandwidth, 0}: 5300,
		{gpumetrics.EnergyAccumulator, 0}: 1000000, {gpumetrics.XGMIReadAcc, 6}: 69000, {gpumetrics.XGMIReadAcc, 7}: 0,
		{gpumetrics.XGMIWriteAcc, 0}: 34500, {gpumetrics.XGMILinkStatus, 0}: 1, {gpumetrics.XGMILinkStatus, 7}: 0,
		{gpumetrics.CurrentGfxclk, 0}: 1489, {gpumetrics.CurrentUclk, 0}: 1300, {gpumetrics.NumPartition, 0}: 4,
		{gpumetrics.XCPGfxBusy, 0}: 69, {gpumetrics.XCPGfxBusy, 1}: 69, {gpumetrics.XCPGfxBusy, 2}: nan,
		{gpumetrics.XCPGfxBusy, 24}: 69, {gpumetrics.XCPGfxBusy, 26}: nan, {gpumetrics.XCPGfxBusy, 32}: nan,
		{gpumetrics.XCPVCNBusy, 0}: 69, {gpumetrics.XCPVCNBusy, 1}: nan, {gpumetrics.XCPVCNBusy, 12}: 69, {gpumetrics.XCPVCNBusy, 16}: nan,
		{gpumetrics.XCPBelowHostLimit, 0}: 0, {gpumetrics.XCPBelowHostLimit, 2}: nan,
	})
}
