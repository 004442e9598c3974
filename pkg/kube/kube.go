// Package kube reads Kubernetes' information about the devices of a node: which pod has which device (the kubelet's
// pod-resources socket), UIDs and labels of pods and the devices of ResourceSlices (the API server).
//
// Each client has one goroutine, its Run, and publishes immutable snapshots behind an atomic pointer. Reading a
// snapshot never waits. After a failure the last good snapshot stays, and a Health reports since when and why. Package
// owner joins the snapshots.
package kube

import (
	"cmp"
	"fmt"
	"strings"
)

// PodName identifies a pod on a node.
type PodName struct{ Namespace, Name string }

// Compare orders pods by namespace and name.
func (p PodName) Compare(q PodName) int {
	return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
}

// failure says why a server gave no answer: a reason for metrics and an error for the log.
type failure struct {
	reason string
	err    error
}

func fail(reason, format string, args ...any) *failure {
	return &failure{reason: reason, err: fmt.Errorf(format, args...)}
}

// clip shortens another program's text for the log.
func clip(s string) string {
	const most = 300 // bytes
	if len(s) <= most {
		return strings.ToValidUTF8(s, "�")
	}
	return strings.ToValidUTF8(s[:most], "") + "…" // without an incomplete rune
}
