// Package amd stands in for AMD's device-metrics-exporter (https://github.com/ROCm/device-metrics-exporter): AMD's
// devices under its names, its configuration file, what AMD's GPU Operator sets, and the paths that AMD's tools ask.
// Names are immutable values that a field list carries; the exporter makes them whenever it reads a list.
package amd

import (
	"net/http"
	"sync/atomic"
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/verdict"
	"warpgauge/pkg/view"
)

// Dialect is what --field-names calls the names of AMD's exporter.
const Dialect = "amd"

// Extension is the extension of one exporter.
type Extension struct {
	verdicts atomic.Pointer[verdict.Board] // nil: nobody judges devices
}

// SetVerdicts says where the verdicts on devices are, which gpu_health shows.
func (e *Extension) SetVerdicts(b *verdict.Board) { e.verdicts.Store(b) }

func (e *Extension) snapshot() *verdict.Snapshot {
	if b := e.verdicts.Load(); b != nil {
		return b.Load()
	}
	return &verdict.Snapshot{}
}

// Named returns the list with AMD's names, and what of the settings cannot be served.
func (e *Extension) Named(list field.List, inPlace bool, s Settings) (field.List, []string) {
	n, why := NewNames(s, e.snapshot)
	list.Dialect = n.Dialect(inPlace)
	return list, why
}

// Routes returns the paths that AMD's tools ask, with their handlers.
func (e *Extension) Routes(current func() *view.View, staleAfter time.Duration) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"/gpumetrics": gpuMetrics(current, staleAfter), "/inbandraserrors": noRASErrors}
}
