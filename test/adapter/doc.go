// Package adapter tests deploy/prometheus-adapter with the code of Prometheus Adapter. The adapter queries a real
// Prometheus, which scrapes the real exporter, which reads pods from a fake kubelet. Only the GPUs, the kubelet and the
// API server's list of pods are simulated.
//
// It is a separate module, because the adapter needs older Kubernetes libraries than the exporter.
package adapter
