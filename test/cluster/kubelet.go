package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a machine without CAP_SYS_RESOURCE allows, and a container of our own as pause.
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

// Pods have addresses of their own and reach the node's, the API server's among them.
const cniConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + podNet + `"}]], "dataDir": "/run/cni"}}]}
`

// Control groups v1 and v2, no groups of the kubelet's own, no iptables, no eviction for
// the disk of a machine that is not the test's.
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

// startContainerd tries a container, which some machines do not allow: without the right
// control groups or capabilities there is no node.
func (n *node) startContainerd() (string, error) {
	if err := missing(n.tools.node()); err != nil {
		return "", err
	}
	err := errors.Join(
		os.WriteFile(n.path("cni/10-pods.conflist"), []byte(cniConfig), 0o644),
		os.WriteFile(n.path("containerd.toml"), fmt.Appendf(nil, containerdConfig, n.path("cni")), 0o644))
	if err != nil {
		return "", err
	}
	if _, err := n.launch("containerd", n.tools.containerd, "--config", n.path("containerd.toml")); err != nil {
		return "", err
	}
	if err := n.wait(30*time.Second, func() error {
		_, err := n.ctr("version")
		return err
	}); err != nil {
		return "", err
	}
	if err := n.importImages(); err != nil {
		return "", err
	}
	out, err := n.ctr("run", "--rm", exporterImage, "can-it-run", "/usr/bin/warpgauge", "version")
	if err != nil {
		return "", skip(err.Error())
	}
	return strings.TrimSpace(out), nil
}

// ctr works where containerd's CRI does.
func (n *node) ctr(args ...string) (string, error) {
	return n.command("", n.dir, n.tools.ctr, append([]string{"--namespace", "k8s.io"}, args...)...)
}

func (n *node) startNode() (string, error) {
	begin := time.Now()
	err := errors.Join(
		os.WriteFile(n.path("kubelet.yaml"), []byte(kubeletConfig), 0o644),
		os.MkdirAll("/var/lib/kubelet", 0o750))
	if err != nil {
		return "", err
	}
	if err := errors.Join(n.startKubelet(), n.nodeReady()); err != nil {
		return "", err
	}
	info, err := n.client.CoreV1().Nodes().Get(n.ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	i := info.Status.NodeInfo
	return fmt.Sprintf("kubelet %s with %s, ready after %s", i.KubeletVersion, i.ContainerRuntimeVersion, since(begin)), nil
}

func (n *node) startKubelet() (err error) {
	n.kubelet, err = n.launch("kubelet", n.tools.kubelet, "--config", n.path("kubelet.yaml"),
		"--kubeconfig", n.path("kubelet.kubeconfig"), "--hostname-override", nodeName, "--node-ip", nodeIP,
		"--node-labels=nvidia.com/gpu.present=true")
	return err
}

func (n *node) nodeReady() error {
	return n.wait(60*time.Second, func() error {
		info, err := n.client.CoreV1().Nodes().Get(n.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range info.Status.Conditions {
			if c.Type == corev1.NodeReady {
				if c.Status == corev1.ConditionTrue {
					return nil
				}
				return errors.New(c.Message)
			}
		}
		return errNotYet
	})
}

// allocatable returns how many of a resource the node offers.
func (n *node) allocatable(resource string) (int64, error) {
	info, err := n.client.CoreV1().Nodes().Get(n.ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	q := info.Status.Allocatable[corev1.ResourceName(resource)]
	return q.Value(), nil
}

// importImages imports our images into containerd, because there is no registry. The exporter's image comes
// from the release, if there is one.
func (n *node) importImages() error {
	archive, err := n.released("warpgauge-image-*.tar")
	if err != nil {
		return err
	}
	if archive != "" {
		if _, err := n.ctr("images", "import", "--index-name", exporterImage, archive); err != nil {
			return err
		}
		n.report.note("the image is %s", archive)
		return n.importImage(image{name: pauseImage, entrypoint: "/pause", files: map[string]string{"pause": n.tools.pause}})
	}
	binary := filepath.Join(n.repo, "bin/warpgauge")
	files, err := sharedLibraries(binary)
	if err != nil {
		return err
	}
	files["usr/bin/warpgauge"] = binary
	lists, err := filepath.Glob(filepath.Join(n.repo, "etc/*.csv"))
	if err != nil {
		return err
	}
	for _, f := range lists {
		files["etc/warpgauge/"+filepath.Base(f)] = f
	}
	return errors.Join(
		n.importImage(image{name: exporterImage, entrypoint: "/usr/bin/warpgauge", files: files}),
		n.importImage(image{name: pauseImage, entrypoint: "/pause", files: map[string]string{"pause": n.tools.pause}}))
}

func (n *node) importImage(i image) error {
	archive := n.path("docker/image.tar")
	if err := i.write(archive); err != nil {
		return fmt.Errorf("write image %s: %w", i.name, err)
	}
	_, err := n.ctr("images", "import", archive)
	return err
}
