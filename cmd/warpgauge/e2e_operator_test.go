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

	"sigs.k8s.io/yaml"

	"warpgauge/internal/testkit"
	kubelet "warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/kube/kubetest/apitest"
)

// operated returns a container of testdata/operators.yml, with the port and path of its probe. hosts has the node's path of
// each mount; /dev is this machine's. Kubernetes applies the other settings to any image. The container runs as the image's
// user, root, without a token. Two things differ: the port, because tests run in parallel, and the simulated GPUs.
func operated(t *testing.T, name string, hosts map[string]string) (c contained, probe string) {
	t.Helper()
	var all map[string]struct {
		Args              []string
		Env, Mounts       map[string]string
		WorkingDir, Probe string
	}
	must(t, yaml.UnmarshalStrict(testkit.Get(os.ReadFile("testdata/operators.yml"))(t), &all))
	made := all[name]
	c = contained{args: made.Args, directory: made.WorkingDir, mounts: map[string]string{}, env: map[string]string{
		"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443", // set by the kubelet in every pod
	}}
	for path, mode := range made.Mounts {
		if c.mounts[path] = hosts[path]; path == "/dev" {
			delete(c.mounts, path)
		} else if mode == "rw" {
			c.writable = append(c.writable, path)
		}
	}
	for name, value := range made.Env {
		c.env[name] = strings.Replace(value, "spec.nodeName", "worker-7", 1)
	}
	return c, made.Probe
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
	list := file(t, "dcgm-metrics.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\nDCGM_FI_DEV_SERIAL, label, Serial number.\n")
	recommended := []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_CLOCK_EVENTS_COUNT"}
	for name, c := range map[string]struct {
		has    []string // expected families
		lacks  string
		labels []string // name, value … on GPU 0's temperature
	}{
		"ClusterPolicy defaults": {has: dcpRows, labels: []string{"hostname", "worker-7"}},
		"ClusterPolicy dcgm":     {has: dcpRows},
		"ClusterPolicy pods":     {has: dcpRows},
		"ClusterPolicy config":   {has: dcpRows[1:2], lacks: "DCGM_FI_DEV_POWER_USAGE"},
		"ClusterPolicy jobs":     {has: dcpRows, labels: []string{"hpc_job", "4711"}},
		"ClusterPolicy args":     {has: recommended, labels: []string{"Hostname", "worker-7"}},
		"ClusterPolicy env":      {has: recommended, labels: []string{"Hostname", "worker-7"}},
		"ClusterPolicy api":      {has: dcpRows[1:2], lacks: "DCGM_FI_DEV_POWER_USAGE"}, // a ConfigMap through the API server
		"GPUCluster defaults":    {has: dcpRows, labels: []string{"hostname", "worker-7"}},
		"GPUCluster pods":        {has: dcpRows},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kubelet.At(t, kubelet.SocketPath(t)) // does not exist yet, but its directory does
			must(t, os.MkdirAll(filepath.Dir(k.Socket()), 0o750))
			container, probe := operated(t, name, map[string]string{
				"/var/lib/kubelet/pod-resources": filepath.Dir(k.Socket()), "/var/lib/dcgm-exporter/job-mapping": jobs, "/etc/dcgm-exporter/dcgm-metrics.csv": list,
			})
			maps.Copy(container.env, map[string]string{"WARPGAUGE_ENABLE_FAKE": "true", "WARPGAUGE_ENABLE_NVML": "false", "WARPGAUGE_ENABLE_ROCM": "false", "WARPGAUGE_ENABLE_DCGM": "false"})
			if container.env["DCGM_REMOTE_HOSTENGINE_INFO"] != "" {
				delete(container.env, "WARPGAUGE_ENABLE_DCGM")
			}
			if container.env["DCGM_EXPORTER_CONFIGMAP_DATA"] != "" { // the kubeconfig stands in for the service account
				container.env["KUBECONFIG"], container.mounts["/kubeconfig"] = "/kubeconfig", api.Kubeconfig()
			}
			e := container.run(t, exe)
			get(t, newClient(t), e.url+strings.TrimPrefix(probe, ":9400")).want(t, "the probe's first question", http.StatusOK)
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
