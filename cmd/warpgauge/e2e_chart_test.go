package main_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/yaml"

	kubelet "warpgauge/pkg/kube/kubetest"

	"warpgauge/internal/testkit"
)

// daemonSet reads a plain manifest, which was rendered from the chart.
func daemonSet(t *testing.T, manifest, component string) *appsv1.DaemonSet {
	t.Helper()
	b := testkit.Get(os.ReadFile("../../deploy/kubernetes/" + manifest))(t)
	for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(string(b), -1) {
		var d appsv1.DaemonSet
		must(t, yaml.Unmarshal([]byte(doc), &d))
		if d.Kind == "DaemonSet" && d.Labels["app.kubernetes.io/component"] == component {
			return &d
		}
	}
	t.Fatalf("%s has no DaemonSet for %s", manifest, component)
	return nil
}

// ofDaemonSet returns the container as the kubelet would start it.
func ofDaemonSet(t *testing.T, d *appsv1.DaemonSet, k *kubelet.Server) contained {
	t.Helper()
	spec := d.Spec.Template.Spec
	c := spec.Containers[0]
	out := contained{env: map[string]string{}, mounts: map[string]string{}, args: c.Args, user: *c.SecurityContext.RunAsUser}
	out.restricted = c.SecurityContext.Capabilities != nil && len(c.SecurityContext.Capabilities.Add) == 0 && !*c.SecurityContext.AllowPrivilegeEscalation
	told := map[string]string{"spec.nodeName": "worker-7", "metadata.name": "warpgauge-x", "metadata.namespace": "warpgauge"}
	for _, e := range c.Env {
		out.env[e.Name] = e.Value
		if e.ValueFrom != nil {
			out.env[e.Name] = told[e.ValueFrom.FieldRef.FieldPath]
		}
	}
	for _, m := range c.VolumeMounts {
		switch m.Name {
		case "pod-gpu-resources":
			out.mounts[m.MountPath] = filepath.Dir(k.Socket())
		case "recordings", "health":
			dir := t.TempDir()
			must(t, os.Chmod(dir, 0o777)) // the mode of an emptyDir
			out.mounts[m.MountPath] = dir
		default:
			t.Fatalf("the test does not know the volume %q", m.Name)
		}
	}
	return out
}

// podWithGPU0 returns a pod with the node's first GPU, under the device plugin's name.
func podWithGPU0(t *testing.T, e *exporter, vendor string) *v1.PodResources {
	t.Helper()
	p := e.await(t, "8 GPUs", eightGPUs).family("DCGM_FI_DEV_GPU_TEMP")
	gpu := p[slices.IndexFunc(p, func(s sample) bool { return s.get("gpu") == "0" })]
	if vendor == "nvidia" {
		return pod("train-0", gpu.get("UUID"))
	}
	return kubelet.Pod("ml", "train-0", kubelet.Container("main", kubelet.Devices("amd.com/gpu", gpu.get("pci_bus_id"))))
}

// TestE2EChart runs the manifests: user, capabilities, mounts, flags, probes.
func TestE2EChart(t *testing.T) {
	t.Parallel()
	mountNamespace(t)
	exe := build(t)
	for name, c := range map[string]struct {
		manifest, component string
		profile, family     string
		user                int64 // replaces the manifest's user unless 0
		pod                 string
	}{
		"NVIDIA":              {manifest: "warpgauge.yaml", component: "nvidia", profile: "dgx-h100", family: "DCGM_FI_DEV_GPU_UTIL", pod: "train-0"},
		"AMD":                 {manifest: "warpgauge.yaml", component: "amd", profile: "mi300x", family: "amd_gpu_temperature_celsius", pod: "train-0"},
		"shared":              {manifest: "warpgauge-shared.yaml", component: "nvidia", profile: "dgx-h100", family: "DCGM_FI_DEV_GPU_UTIL", pod: "train-0"},
		"rootless":            {manifest: "warpgauge-rootless.yaml", component: "nvidia", profile: "dgx-h100", family: "DCGM_FI_DEV_GPU_UTIL"},
		"another user's pods": {manifest: "warpgauge.yaml", component: "nvidia", profile: "dgx-h100", family: "DCGM_FI_DEV_GPU_UTIL", user: 65532},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kubelet.Start(t)
			d := daemonSet(t, c.manifest, c.component)
			container := ofDaemonSet(t, d, k)
			container.env["WARPGAUGE_EXPORTER_METRICS"] = "full"
			container.env["WARPGAUGE_FAKE_PROFILE"] = c.profile
			container.args = append(slices.DeleteFunc(container.args, func(arg string) bool { return strings.HasPrefix(arg, "--enable-only=") }), "--enable-only=fake")
			if c.user != 0 {
				container.user = c.user
			}
			e := container.run(t, exe)
			k.Set(podWithGPU0(t, e, c.component))
			e.await(t, "the page", podOf(map[string]string{"0": c.pod, "1": ""}), func(p page) error {
				if len(p.family(c.family)) == 0 {
					return errors.New("no series of " + c.family)
				}
				return nil
			})
			if c.user != 0 {
				// The pod runs as root because the kubelet's directory and socket belong to root.
				e.await(t, "what is wrong with the kubelet", is(0, "warpgauge_mapping_up", "mapping", "pod_resources"), func(p page) error {
					n, err := p.one("warpgauge_mapping_errors_total", "mapping", "pod_resources", "reason", "denied")
					if err == nil && n == 0 {
						err = errors.New("nothing was denied")
					}
					return err
				})
				e.awaitLog(t, "permission denied")
			}
			probes := d.Spec.Template.Spec.Containers[0]
			for _, path := range []string{probes.LivenessProbe.HTTPGet.Path, probes.ReadinessProbe.HTTPGet.Path} {
				get(t, newClient(t), e.url+path).want(t, path, http.StatusOK)
			}
			testkit.Equal(t, "the manifest lets the container have capabilities", false, !container.restricted)
			e.ends(t, os.Interrupt)
		})
	}
}
