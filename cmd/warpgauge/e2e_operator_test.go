package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	kubelet "warpgauge/pkg/kube/kubetest"
)

// clusterPolicy are the settings of dcgmExporter in the GPU Operator's ClusterPolicy
// that reach the container. The rest of them (TestMigrationFromTheOperator) are the
// image, the resources and annotations of the pod, its Service and ServiceMonitor, hostPID and
// hostNetwork, with which Kubernetes does what it does with any image.
type clusterPolicy struct {
	env                    []string
	args                   []string
	podLabels, podUID      bool
	podLabelAllowlistRegex []string
	config                 string // the list in the ConfigMap that config.name names
	hpcJobs                map[string]string
	hostEngine             bool   // dcgm.enabled
	claims                 bool   // of the DaemonSet for clusters with dynamic resource allocation, nvidia-dcgm-exporter-dra
	configMaps             string // address of an API server, to which the pod has a token; set by env, as the operator looks at it
}

// container is what the operator makes of them at a22dbf671f2e, in August 2026: assets/state-dcgm-exporter
// with TransformDCGMExporter in controllers/object_controls.go, and manifests/state-dcgm-exporter with
// internal/state/dcgm_exporter.go of https://github.com/NVIDIA/gpu-operator. There are no
// arguments but the user's; what is the user's comes last and wins.
func (p clusterPolicy) container(t *testing.T, k *kubelet.Server) (env map[string]string, mounts map[string]string) {
	t.Helper()
	env = map[string]string{
		"DCGM_EXPORTER_LISTEN":     ":9400",
		"DCGM_EXPORTER_KUBERNETES": "true",
		"DCGM_EXPORTER_COLLECTORS": "/etc/dcgm-exporter/dcp-metrics-included.csv",
		"NODE_NAME":                "worker-7",
		// The kubelet's, in every pod.
		"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443",
	}
	mounts = map[string]string{"/var/lib/kubelet/pod-resources": filepath.Dir(k.Socket())}
	if p.hostEngine {
		env["DCGM_REMOTE_HOSTENGINE_INFO"] = "nvidia-dcgm:5555"
		if p.claims {
			env["DCGM_REMOTE_HOSTENGINE_INFO"] = "nvidia-dcgm-dra:5555"
		}
	}
	if p.claims {
		env["KUBERNETES_ENABLE_DRA"] = "true"
	}
	if p.configMaps != "" {
		env["KUBECONFIG"], mounts["/kubeconfig"] = "/kubeconfig", file(t, "kubeconfig", kubeconfigOf(p.configMaps))
	}
	if p.hpcJobs != nil {
		dir := t.TempDir()
		for name, jobs := range p.hpcJobs {
			write(t, filepath.Join(dir, name), jobs)
		}
		env["DCGM_HPC_JOB_MAPPING_DIR"] = "/var/lib/dcgm-exporter/job-mapping"
		mounts["/var/lib/dcgm-exporter/job-mapping"] = dir
	}
	if p.podLabels {
		env["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"] = "true"
	}
	if p.podUID {
		env["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"] = "true"
	}
	if p.podLabelAllowlistRegex != nil {
		env["DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"] = strings.Join(p.podLabelAllowlistRegex, ",")
	}
	if p.config != "" {
		mounts["/etc/dcgm-exporter/dcgm-metrics.csv"] = file(t, "dcgm-metrics.csv", p.config)
		env["DCGM_EXPORTER_COLLECTORS"] = "/etc/dcgm-exporter/dcgm-metrics.csv"
	}
	for _, v := range p.env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env, mounts
}

// operate runs the binary as the operator's DaemonSet does: by the image's user, root,
// without arguments and without a token. Two things differ: the port, since tests run side
// by side, and that GPUs are simulated.
func operate(t *testing.T, exe string, p clusterPolicy, k *kubelet.Server) *exporter {
	t.Helper()
	env, mounts := p.container(t, k)
	env["WARPGAUGE_ENABLE_FAKE"], env["WARPGAUGE_ENABLE_NVML"], env["WARPGAUGE_ENABLE_ROCM"] = "true", "false", "false"
	if !p.hostEngine {
		env["WARPGAUGE_ENABLE_DCGM"] = "false"
	}
	return contained{env: env, mounts: mounts, args: p.args}.run(t, exe)
}

// dcpRows are fields of the operator's default list that a simulated H100 has.
var dcpRows = []string{
	"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED",
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES",
}

func TestE2EGPUOperator(t *testing.T) {
	mountNamespace(t)
	exe := build(t)
	api := configMapServer(t, "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n")
	for name, c := range map[string]struct {
		policy clusterPolicy
		has    []string // families
		lacks  string
		labels []string // name, value … of GPU 0's temperature
	}{
		"defaults": {has: dcpRows, labels: []string{"hostname", "worker-7"}},
		"pod metadata and a host engine, and no token": {
			policy: clusterPolicy{podLabels: true, podUID: true, podLabelAllowlistRegex: []string{"^app$", `^kueue\.x-k8s\.io/.*$`}, hostEngine: true},
			has:    dcpRows,
		},
		"a list": {
			policy: clusterPolicy{config: "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\nDCGM_FI_DEV_SERIAL, label, Serial number.\n"},
			has:    []string{"DCGM_FI_DEV_GPU_TEMP"}, lacks: "DCGM_FI_DEV_POWER_USAGE",
		},
		"jobs": {
			policy: clusterPolicy{hpcJobs: map[string]string{"0": "4711\n"}},
			has:    dcpRows, labels: []string{"hpc_job", "4711"},
		},
		"args": {
			policy: clusterPolicy{args: []string{"-f", "/etc/warpgauge/recommended-counters.csv", "-c", "100", "--hostname-label", "Hostname"}},
			has:    []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_CLOCK_EVENTS_COUNT"}, labels: []string{"Hostname", "worker-7"},
		},
		"a list of a ConfigMap through the API server": {
			policy: clusterPolicy{env: []string{"DCGM_EXPORTER_CONFIGMAP_DATA=gpus:fields"}, configMaps: api},
			has:    []string{"DCGM_FI_DEV_GPU_TEMP"}, lacks: "DCGM_FI_DEV_POWER_USAGE",
		},
		"claims": {policy: clusterPolicy{claims: true, hostEngine: true, podLabels: true}, has: dcpRows, labels: []string{"hostname", "worker-7"}},
		"env": {
			policy: clusterPolicy{env: []string{"DCGM_EXPORTER_INTERVAL=100", "WARPGAUGE_HOSTNAME_LABEL=Hostname", "DCGM_EXPORTER_COLLECTORS=/etc/warpgauge/recommended-counters.csv"}},
			has:    []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_CLOCK_EVENTS_COUNT"}, labels: []string{"Hostname", "worker-7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kubelet.At(t, kubelet.SocketPath(t)) // which is not there yet, but its directory is
			must(t, os.MkdirAll(filepath.Dir(k.Socket()), 0o750))
			e := operate(t, exe, c.policy, k)
			if a := get(t, newClient(t), e.url+"/health"); a.code != http.StatusOK {
				t.Errorf("the probe's first question: %d %s", a.code, a.body)
			}
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
				if c.lacks != "" {
					err = errors.Join(err, count(0, c.lacks)(p))
				}
				return err
			})
			if c.policy.hostEngine {
				if out := e.Output(); !strings.Contains(out, "nvidia-dcgm") || !strings.Contains(out, "WARN") {
					t.Errorf("no warning names the engine:\n%s", out)
				}
				e.await(t, "an engine that is not there, in the metrics", is(0, "warpgauge_collector_up", "collector", "dcgm"))
			}
			e.ends(t, syscall.SIGTERM)
		})
	}
}
