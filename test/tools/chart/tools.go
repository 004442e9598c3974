//go:build tools

// Package chart pins the programs that check the Helm chart. It is a separate module: Helm alone has more dependencies
// than the exporter.
package chart

import (
	_ "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
	_ "helm.sh/helm/v3/cmd/helm"
)
