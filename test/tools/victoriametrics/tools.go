//go:build tools

// Package victoriametrics pins the program for make victoriametrics-test. It is a separate module, to keep its
// dependencies out of the exporter's.
package victoriametrics

import (
	_ "github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert-tool"
)
