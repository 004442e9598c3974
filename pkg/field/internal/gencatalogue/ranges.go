package main

type span struct{ min, max float64 }

// most is above any count that occurs and below DCGM's markers for "no value"
// (0x7ffffffffffffff0 and up), so that one which slips through is dropped.
const most = 9e18

// ranges are the plausible values of each unit, generous on purpose: they catch
// nonsense (a utilisation of 808 million percent does occur), not outliers.
var ranges = map[string]span{
	"":        {0, most},
	"%":       {0, 100},
	"MB/s":    {0, 1e7}, // 10 TB/s: NVLink 6 has 3.6 in both directions together
	"KB/s":    {0, 1e9}, // 1 TB/s: PCIe 6 has 0.26
	"MHz":     {0, 20_000},
	"MiB":     {0, 64 << 20}, // 64 TiB
	"W":       {0, 20_000},
	"bool":    {0, 1},
	"bytes":   {0, most},
	"bytes/s": {0, 1e13},
	"celsius": {-50, 150}, // chips stop below 130
	"cycles":  {0, most},
	"kHz":     {0, 20_000_000},
	"mJ":      {0, most},
	"mV":      {0, 100_000},
	"mW/s":    {0, 1e12},
	"ms":      {0, most},
	"ns":      {0, most},
	"ratio":   {0, 1.1}, // counters of two instants may pass 1 by a little
	"s":       {0, most},
}
