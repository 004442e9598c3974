//go:build tools

// Package prometheusadapter pins Prometheus Adapter. It has a module of its own: it wants
// older Kubernetes libraries than any other program here.
package prometheusadapter

import _ "sigs.k8s.io/prometheus-adapter/cmd/adapter"
