package main_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"warpgauge/internal/testkit"
	kubelet "warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/kube/kubetest/apitest"
)

// operated runs a container as the GPU Operator creates it from dcgmExporter in a ClusterPolicy (a22dbf671f2e, August 2026:
// assets/state-dcgm-exporter with TransformDCGMExporter in controllers/object_controls.go, and manifests/state-dcgm-exporter
// with internal/state/dcgm_exporter.go of https://github.com/NVIDIA/gpu-operator). env and mounts are the additions of a
// setting; only the user sets arguments. Kubernetes applies the other settings to any image. The container runs as the image's
// user, root, without a token. Two things differ: the port, because tests run in parallel, and the simulated GPUs.
func operated(t *testing.T, k *kubelet.Server, env []string, mounts map[string]string, args []string) contained {
	t.Helper()
	c := contained{args: args, mounts: map[string]string{"/var/lib/kubelet/pod-resources": filepath.Dir(k.Socket())}, env: map[string]string{
		"DCGM_EXPORTER_LISTEN":     ":9400",
		"DCGM_EXPORTER_KUBERNETES": "true",
		"DCGM_EXPORTER_COLLECTORS": "/etc/dcgm-exporter/dcp-metrics-included.csv",
		"NODE_NAME":                "worker-7",
		// Set by the kubelet in every pod.
		"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443",
		"WARPGAUGE_ENABLE_FAKE": "true", "WARPGAUGE_ENABLE_NVML": "false", "WARPGAUGE_ENABLE_ROCM": "false", "WARPGAUGE_ENABLE_DCGM": "false",
	}}
	maps.Copy(c.mounts, mounts)
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		c.env[name] = value
	}
	if c.env["DCGM_REMOTE_HOSTENGINE_INFO"] != "" {
		delete(c.env, "WARPGAUGE_ENABLE_DCGM")
	}
	return c
}

// dcpRows lists the fields of the operator's default list that a simulated H100 has.
var dcpRows = []string{
	"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED",
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES",
}

func TestE2EGPUOperator(t *testing.T) {
	t.Parallel()
	mountNamespace(t)
	exe := build(t)
	api := apitest.Start(t, "worker-7")
	api.AnswerFirst(func(w http.ResponseWriter, r *http.Request) bool {
		found := r.URL.Path == "/api/v1/namespaces/gpus/configmaps/fields"
		if found {
			apitest.Reply(w, http.StatusOK, apitest.Object{"kind": "ConfigMap", "apiVersion": "v1", "metadata": apitest.Object{"name": "fields", "namespace": "gpus"},
				"data": apitest.Object{"metrics": "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n"}})
		}
		return found
	})
	jobs := t.TempDir()
	write(t, filepath.Join(jobs, "0"), "4711\n")
	const list, jobMapping, recommended = "/etc/dcgm-exporter/dcgm-metrics.csv", "/var/lib/dcgm-exporter/job-mapping", "/etc/warpgauge/recommended-counters.csv"
	for name, c := range map[string]struct {
		env    []string
		mounts map[string]string
		args   []string
		has    []string // expected families
		lacks  string
		labels []string // name, value … on GPU 0's temperature
	}{
		"defaults": {has: dcpRows, labels: []string{"hostname", "worker-7"}},
		"pod metadata and a host engine": {has: dcpRows, env: []string{
			"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS=true", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID=true",
			`DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX=^app$,^kueue\.x-k8s\.io/.*$`, "DCGM_REMOTE_HOSTENGINE_INFO=nvidia-dcgm:5555",
		}},
		"a list": {
			env: []string{"DCGM_EXPORTER_COLLECTORS=" + list}, mounts: map[string]string{list: file(t, "dcgm-metrics.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\nDCGM_FI_DEV_SERIAL, label, Serial number.\n")},
			has: []string{"DCGM_FI_DEV_GPU_TEMP"}, lacks: "DCGM_FI_DEV_POWER_USAGE",
		},
		"jobs": {env: []string{"DCGM_HPC_JOB_MAPPING_DIR=" + jobMapping}, mounts: map[string]string{jobMapping: jobs}, has: dcpRows, labels: []string{"hpc_job", "4711"}},
		"args": {
			args: []string{"-f", recommended, "-c", "100", "--hostname-label", "Hostname"},
			has:  []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_CLOCK_EVENTS_COUNT"}, labels: []string{"Hostname", "worker-7"},
		},
		"a list of a ConfigMap through the API server": {
			env: []string{"DCGM_EXPORTER_CONFIGMAP_DATA=gpus:fields", "KUBECONFIG=/kubeconfig"}, mounts: map[string]string{"/kubeconfig": api.Kubeconfig()},
			has: []string{"DCGM_FI_DEV_GPU_TEMP"}, lacks: "DCGM_FI_DEV_POWER_USAGE",
		},
		"claims": { // from nvidia-dcgm-exporter-dra, the DaemonSet for clusters with dynamic resource allocation
			env: []string{"KUBERNETES_ENABLE_DRA=true", "DCGM_REMOTE_HOSTENGINE_INFO=nvidia-dcgm-dra:5555", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS=true"},
			has: dcpRows, labels: []string{"hostname", "worker-7"},
		},
		"env": {
			env: []string{"DCGM_EXPORTER_INTERVAL=100", "WARPGAUGE_HOSTNAME_LABEL=Hostname", "DCGM_EXPORTER_COLLECTORS=" + recommended},
			has: []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_CLOCK_EVENTS_COUNT"}, labels: []string{"Hostname", "worker-7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kubelet.At(t, kubelet.SocketPath(t)) // does not exist yet, but its directory does
			must(t, os.MkdirAll(filepath.Dir(k.Socket()), 0o750))
			container := operated(t, k, c.env, c.mounts, c.args)
			e := container.run(t, exe)
			get(t, newClient(t), e.url+"/health").want(t, "the probe's first question", http.StatusOK)
			gpus := e.uuids(t)
			k.Set(pod("train-0", gpus["0"]))
			k.Serve()
			e.await(t, "the page that was asked for", podOf(map[string]string{"0": "train-0", "1": ""}), func(p page) error {
				_, err := p.one("DCGM_FI_DEV_GPU_TEMP", append([]string{"gpu", "0"}, c.labels...)...)
				for _, f := range c.has {
					if n := len(p.family(f)); n < 8 {
						err = errors.Join(err, fmt.Errorf("%d series of %s, want one for each of 8 GPUs", n, f))
					}
				}
				return errors.Join(err, count(0, c.lacks)(p))
			})
			if container.env["DCGM_REMOTE_HOSTENGINE_INFO"] != "" {
				testkit.Has(t, "log, which warns of the engine", e.Output(), "nvidia-dcgm", "WARN")
				e.await(t, "an engine that is not there, in the metrics", is(0, "warpgauge_collector_up", "collector", "dcgm"))
			}
			e.ends(t, syscall.SIGTERM)
		})
	}
}
