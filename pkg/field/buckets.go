package field

import "strconv"

// bounds holds the buckets of a histogram by the unit of the reading: ten to twenty each, fine in the range
// of real devices. Readings that can be 0 have a bucket for 0 alone, so that a quantile of an idle device is
// 0 and not the middle of the next bucket.
var bounds = map[string][]float64{
	"%":       {0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100},
	"ratio":   {0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1},
	"bool":    {0, 1},
	"celsius": {20, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 100, 110},
	"W":       {25, 50, 75, 100, 150, 200, 250, 300, 350, 400, 500, 600, 700, 850, 1000, 1200, 1500, 2000},
	"MHz":     {100, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000, 5000, 7500, 10000, 15000},
	"kHz":     {5e5, 1e6, 1.25e6, 1.5e6, 1.75e6, 2e6, 2.25e6, 2.5e6, 2.75e6, 3e6, 3.25e6, 3.5e6, 4e6, 5e6},
	"mV":      {500, 600, 650, 700, 750, 800, 850, 900, 950, 1000, 1100, 1200},
	"MiB":     {256, 512, 1024, 2048, 4096, 8192, 16384, 24576, 32768, 49152, 65536, 81920, 98304, 131072, 196608, 262144, 524288},
	"bytes/s": {0, 1e6, 3e6, 1e7, 3e7, 1e8, 3e8, 1e9, 3e9, 1e10, 3e10, 1e11, 3e11, 1e12, 3e12},
	"MB/s":    {0, 1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3e6},
	"KB/s":    {0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 3e8},
}

// counts is for readings without a natural scale.
var counts = []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5, 1e6, 1e9, 1e12}

// bucketsFor returns the buckets of d for a series in the unit d × scale.
func bucketsFor(d *Descriptor, scale float64) (out []float64) {
	in, ok := bounds[d.Unit]
	if !ok {
		in = counts
	}
	for _, b := range in {
		if b >= d.Min && b <= d.Max {
			v, _ := strconv.ParseFloat(strconv.FormatFloat(b*scale, 'g', 12, 64), 64) // 0.7, not 0.7000000000000001
			out = append(out, v)
		}
	}
	return out
}
