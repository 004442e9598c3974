package main

import (
	"os"
	"strings"
)

// namespaceFile is where a pod with a service account finds its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ownPod is the pod that this process runs in. Where an exporter gets its devices
// by a claim of its own, as with dynamic resource allocation, the kubelet lists it
// as a user of all of them, which it is not.
type ownPod struct{ namespace, name string } // empty: not known

// self finds out which pod this is: POD_NAME and POD_NAMESPACE say it. Without them
// a pod's host name is its name, unless it has the host's network, and then no
// pod is called so.
func (a *app) self() ownPod {
	if in, _ := a.lookup("KUBERNETES_SERVICE_HOST"); in == "" {
		return ownPod{}
	}
	var p ownPod
	p.name, _ = a.lookup("POD_NAME")
	p.namespace, _ = a.lookup("POD_NAMESPACE")
	if p.name == "" {
		p.name, _ = os.Hostname() // without a name there is nobody to leave out
	}
	if p.namespace == "" {
		text, _ := os.ReadFile(namespaceFile) // as above
		p.namespace = strings.TrimSpace(string(text))
	}
	return p
}

// is says whether a pod is this one. Names of a DaemonSet's pods are unique enough
// where the namespace is not known.
func (p ownPod) is(namespace, name string) bool {
	return p.name != "" && p.name == name && (p.namespace == "" || p.namespace == namespace)
}
