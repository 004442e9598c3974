// Package adapter tests deploy/prometheus-adapter with the adapter's own code: the code of
// Prometheus Adapter asks a real Prometheus, which scrapes the real exporter, whose pods
// a pod-resources server on a unix socket lists. Only the GPUs are simulated, and the API
// server's list of pods.
//
// A module of its own, because the adapter wants older Kubernetes libraries than ours.
package adapter
