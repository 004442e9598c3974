//go:build tools

// Package victoriametrics pins the program of make victoriametrics-test. It has a module of its
// own, so that nothing of it is in the exporter's.
package victoriametrics

import (
	_ "github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert-tool"
)
