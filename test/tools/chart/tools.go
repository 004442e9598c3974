//go:build tools

// Package chart pins the programs with which the Helm chart is checked. They have a
// module of their own: Helm alone has more dependencies than the exporter.
package chart

import (
	_ "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
	_ "helm.sh/helm/v3/cmd/helm"
)
