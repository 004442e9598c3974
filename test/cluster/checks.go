package main

import (
	"embed"
)

const (
	monitoring  = "monitoring" // namespace of the chart
	workloads   = "ml"         // that of the pods with GPUs, as in deploy/prometheus-adapter/hpa
	utilization = "DCGM_FI_DEV_GPU_UTIL"

	gpu       = "nvidia.com/gpu"
	sharedGPU = "nvidia.com/gpu.shared"
)

// What each simulated GPU is offered as: 0 to 5 whole, 6 in two time slices, 7 by DRA.
const (
	wholeGPUs = 6
	sliced    = 6
	dra       = 7
)

//go:embed manifests
var manifests embed.FS

// apply creates what a file of manifests says.
func (n *node) apply(name string) error {
	text, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		return err
	}
	_, err = n.kubectl(string(text), "apply", "--validate=strict", "-f", "-")
	return err
}

// checks are in the order in which they need each other.
func (n *node) checks() {
	c := n.report.check
	if !c("control plane: etcd, API server, controller manager, scheduler", n.startControlPlane) {
		return
	}
	c("a lost GPU: condition and event of the node appear and are withdrawn, with leave for nothing else", n.nodeHealth)
	if !c("the chart as a package", n.packageChart) {
		return
	}
	c("every variant of the chart passes the API server's dry run, with the Prometheus operator's CRDs", n.dryRun)
	c("the plain manifests and the examples of HPAs pass the dry run", n.dryRunPlain)
	c("pods are on the nodes of both vendors, on those of nodeSelector, and on none whose driver is replaced; the notes count them", n.placement)
	c("a claim with admin access: the scheduler gives it a GPU that another pod has, and says so in each version of the API", n.adminAccess)
	if !c("containerd and runc start a container", n.startContainerd) || !c("the kubelet makes a node", n.startNode) ||
		!c("device plugin: "+gpu+" and time slices", n.startPlugins) {
		return
	}
	c("pods that ask for GPUs run", n.startWorkloads)
	if !c("the chart's DaemonSet is ready, without leave to read pods", n.installWithoutLeave) {
		return
	}
	c("namespace, pod and container, as the kubelet tells", n.owners)
	c("without RBAC: a message, and everything else stays", n.message)
	c("with the chart's RBAC: labels and uid of pods", n.installWithLeave)
	c("helm test passes", n.helmTest)
	c("time-sliced GPU: a series for each container", n.slices)
	c("dynamic resource allocation: the device's pod", n.dynamic)
	c("processes on a shared GPU: each pod's own values", func() (string, error) {
		return "", skip("needs the machine's first PID namespace; this cluster has one of its own")
	})
	if c("Prometheus and Prometheus Adapter", n.startMonitoring) {
		c("load rises: the HPA scales up", n.scaleUp)
		c("External and Object metrics", n.otherMetrics)
		c("load falls: the HPA scales down", n.scaleDown)
	}
	c("the kubelet restarts while the page is scraped: labels stay", n.restartKubelet)
	c("the release is uninstalled and leaves nothing", n.uninstall)
}
