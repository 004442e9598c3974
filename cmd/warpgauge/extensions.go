package main

import (
	"warpgauge/extensions/amd"
	health "warpgauge/extensions/health/extension"
	"warpgauge/extensions/live"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/exporter"
)

// extensions is the table of extensions. The program builds and serves the same page without any of them.
func extensions() []exporter.Extension {
	return []exporter.Extension{live.New(), health.New(), remote.NewExtension(), new(amd.Extension)}
}

// extension returns the extension of a type; the zero value if the table lacks it.
func extension[E exporter.Extension](a *exporter.Program) (e E) {
	for _, x := range a.Extensions {
		if x, ok := x.(E); ok {
			return x
		}
	}
	return e
}
