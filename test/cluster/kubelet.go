package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits for a machine without CAP_SYS_RESOURCE, and our own pause container.
const containerdConfig = `version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%s"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`

// Pods have their own addresses and can reach the node's addresses, including the API server's.
const cniConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + podNet + `"}]], "dataDir": "/run/cni"}}]}
`

// Control groups v1 and v2, no extra groups for the kubelet, no iptables, and no eviction, because the machine's disk
// is not the test's.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
oomScoreAdj: 0
nodeStatusUpdateFrequency: 2s
resolvConf: ""
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi}
volumePluginDir: /var/lib/kubelet/volume-plugins
`

// startContainerd runs a container, which requires the right control groups and capabilities.
func (n *node) startContainerd() string {
	n.write("cni/10-pods.conflist", cniConfig, 0o644)
	n.launch("containerd", "containerd", "--config", n.write("containerd.toml", fmt.Sprintf(containerdConfig, n.path("cni")), 0o644))
	n.wait(30*time.Second, func() { n.ctr("version") })
	n.importImages()
	return n.ctr("run", "--rm", exporterImage, "can-it-run", "/usr/bin/warpgauge", "version")
}

// ctr runs ctr in the namespace of containerd's CRI.
func (n *node) ctr(args ...string) string {
	return n.command("", n.dir, "ctr", append([]string{"--namespace", "k8s.io"}, args...)...)
}

func (n *node) startNode() string {
	begin := time.Now()
	n.write("kubelet.yaml", kubeletConfig, 0o644)
	must(os.MkdirAll("/var/lib/kubelet", 0o750))
	n.launch("kubelet", "kubelet", "--config", n.path("kubelet.yaml"),
		"--kubeconfig", n.path("kubelet.kubeconfig"), "--hostname-override", nodeName, "--node-ip", nodeIP,
		"--node-labels=nvidia.com/gpu.present=true")
	n.wait(60*time.Second, func() {
		conditions := n.self().Status.Conditions
		if !slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			fail("the node is not ready: %+v", conditions)
		}
	})
	i := n.self().Status.NodeInfo
	return fmt.Sprintf("kubelet %s with %s, ready after %s", i.KubeletVersion, i.ContainerRuntimeVersion, since(begin))
}

// self returns the Node object of the kubelet.
func (n *node) self() *corev1.Node {
	return get(n.client.CoreV1().Nodes().Get(n.ctx, nodeName, metav1.GetOptions{}))
}

// importImages imports our images into containerd, because there is no registry. The exporter's image comes
// from the release, if there is one.
func (n *node) importImages() {
	n.importImage(image{name: pauseImage, entrypoint: "/pause", files: map[string]string{"pause": filepath.Join(n.repo, "bin/cluster-pause")}})
	if archive := n.released("warpgauge-image-*.tar"); archive != "" {
		n.ctr("images", "import", "--index-name", exporterImage, archive)
		return
	}
	files := map[string]string{"usr/bin/warpgauge": filepath.Join(n.repo, "bin/cluster-warpgauge")} // without cgo, so it needs no libraries
	for _, f := range get(filepath.Glob(filepath.Join(n.repo, "etc/*.csv"))) {
		files["etc/warpgauge/"+filepath.Base(f)] = f
	}
	n.importImage(image{name: exporterImage, entrypoint: "/usr/bin/warpgauge", files: files})
}

func (n *node) importImage(i image) {
	n.ctr("images", "import", n.write("docker/image.tar", string(i.archive()), 0o644))
}
