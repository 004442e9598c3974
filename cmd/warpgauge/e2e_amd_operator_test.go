package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/extensions/health/consumer/amdplugin/gpumetricssvc"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	kubelet "warpgauge/pkg/kube/kubetest"
)

const amdJob = `{ "SLURM_JOB_ID": "4711", "SLURM_JOB_USER": "anna", "SLURM_JOB_PARTITION": "mi300", "SLURM_CLUSTER_NAME": "c1", "CUDA_VISIBLE_DEVICES": "1" }` + "\n"

// TestE2EAMDGPUOperator runs the binary on simulated GPUs as AMD's operator runs its exporter, from spec.metricsExporter of a
// DeviceConfig: testdata/operators.yml.
func TestE2EAMDGPUOperator(t *testing.T) {
	t.Parallel()
	mountNamespace(t)
	exe := build(t)
	const detected = "started as by AMD's GPU Operator"
	for name, c := range map[string]struct {
		of     string   // manifest
		args   []string // of an older operator, in addition
		config string   // config.json in the ConfigMap of config.name, or ""
		prefix string
		log    []string // expected in the log, in addition to detected
		image  string   // an ENV of an image made from ours, which the operator leaves
	}{
		"defaults":         {of: "defaults"},
		"behind the proxy": {of: "rbac"},
		"an older operator's flags": {
			of: "defaults", args: []string{"--agent-grpc-port=50061", "--some-flag", "value", "--monitor-gpu=true"},
			log: []string{"--agent-grpc-port has no effect: there is no agent", `ignoring an unknown flag {"flag": "--some-flag"}`},
		},
		"a wrong configuration": {
			of: "config", config: "{",
			log: []string{"cannot use the configuration of AMD's exporter", "line 1, character 1: it is not JSON"},
		},
		"the node's condition": {of: "defaults", image: "WARPGAUGE_HEALTH_NODE_CONDITION"},
		"a configuration": {
			of: "config",
			config: `{"ServerPort": 1, "CommonConfig": {"MetricsFieldPrefix": "amd_", "Logging": {"Level": "info", "MaxBackups": 3}},
				"GPUConfig": {"Fields": ["GPU_PACKAGE_POWER", "GPU_JUNCTION_TEMPERATURE", "GPU_HEALTH", "GPU_PROF_SM_ACTIVE"], "CustomLabels": {"CLUSTER_NAME": "c9"}}, "NICConfig": {}}`,
			prefix: "amd_",
			log:    []string{`"GPU_PROF_SM_ACTIVE": the profiler allows one client at a time`, "NICConfig: network cards are not read", "MaxBackups: the log goes to standard error"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kubelet.At(t, kubelet.SocketPath(t))
			tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.7", GPUs: 2})
			k.Set(kubelet.Pod("ml", "train-0", kubelet.Container("main", kubelet.Devices("amd.com/gpu", tree.GPUs[0].PCI))))
			k.Serve()
			sockets, configuration, kube := t.TempDir(), t.TempDir(), newNodeStatus(t, "worker-7")
			made, _ := operated(t, "DeviceConfig "+c.of, map[string]string{
				"/sys": filepath.Join(tree.Root, "sys"), "/var/lib/kubelet/pod-resources": filepath.Dir(k.Socket()), "/etc/metrics": configuration,
				"/var/lib/amd-metrics-exporter": sockets, "/var/run/exporter": filepath.Dir(file(t, "1", amdJob)), // from Slurm's prolog
			})
			if c.config != "" {
				configMap(t, configuration, "config.json", c.config)
			}
			if made.args = slices.Concat(made.args, c.args); c.of == "rbac" {
				made.env["METRICS_EXPORTER_PORT"], made.listens = "0", true // any free one, at the address that the arguments name
			}
			if c.image != "" { // the kubeconfig stands in for the service account
				made.mounts["/kubeconfig"] = kube.Kubeconfig()
				maps.Copy(made.env, map[string]string{c.image: "true", "KUBECONFIG": "/kubeconfig", "WARPGAUGE_SLOW_INTERVAL": "1s"})
			}
			e := made.run(t, exe)
			gauge := c.prefix + "gpu_junction_temperature"
			e.await(t, "the page of a node of the operator", func(p page) error {
				_, err := p.one(gauge, "gpu_id", "0", "hostname", "worker-7", "pod", "train-0", "namespace", "ml", "container", "main")
				_, ours := p.one("DCGM_FI_DEV_GPU_TEMP", "gpu", "0", "hostname", "worker-7", "pod", "train-0")
				_, job := p.one(gauge, "gpu_id", "1", "job_id", "4711", "job_user", "anna", "job_partition", "mi300", "pod", "")
				err = errors.Join(err, ours, job, p.want(1, c.prefix+"gpu_health", "gpu_id", "1"))
				if len(p.family("amd_gpu_temperature_celsius")) == 0 {
					err = errors.Join(err, errors.New("the page lacks AMD's own values"))
				}
				if all := len(p.family(c.prefix + "gpu_power_usage")); (all == 0) != (c.prefix != "") {
					err = errors.Join(err, fmt.Errorf("%d series of gpu_power_usage", all))
				}
				return err
			})
			conn := socketClient(t, filepath.Join(sockets, "amdgpu_device_metrics_exporter_grpc.socket"))
			eventually.OK(t, "the device plugin's answer", func() error {
				var answer gpumetricssvc.GPUStateResponse
				err := conn.Invoke(t.Context(), "/metricssvc.MetricsService/List", &emptypb.Empty{}, &answer)
				if n := len(answer.GetGPUState()); err == nil && (n != 2 || answer.GetGPUState()[0].GetHealth() != "healthy") {
					err = fmt.Errorf("%d GPUs: %v", n, &answer)
				}
				return err
			})
			eventually.OK(t, "what amdgpuhealth reads", func() error { return e.gpuMetrics(t, gauge) })
			for _, want := range append(c.log, detected) {
				testkit.Times(t, 1, e.Output(), want)
			}
			if c.config != "" {
				e.updates(t, configuration, c.prefix)
			}
			if c.image != "" {
				kube.becomes(t, metav1.ConditionFalse, "")
				tree.GPUs[1].Update(t, func(s *rocmtest.State) { s.Uncorrectable = 1 })
				kube.becomes(t, metav1.ConditionTrue, "GPU 1 is failed: uncorrected")
			}
			e.ends(t, syscall.SIGTERM)
		})
	}
}

// socketClient connects to a socket of the real binary.
func socketClient(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	c := testkit.Get(grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy()))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// gpuMetrics reads /gpumetrics like amdgpuhealth and compares it with the page. Names and types are from the parts of AMD's
// agent's description of a GPU that the plugin reads: GPUStats and others in pkg/amdgpu/gen of ROCm/device-metrics-exporter.
func (e *exporter) gpuMetrics(t *testing.T, gauge string) error {
	t.Helper()
	client := newClient(t)
	if a, err := client.Get(e.url + "/inbandraserrors?severity=CPER_SEVERITY_FATAL"); err == nil {
		_ = a.Body.Close()
		t.Errorf("errors of RAS are not known, and amdgpuhealth takes %s for none", a.Status)
	}
	a, err := client.Get(e.url + "/gpumetrics")
	if err != nil {
		return err
	}
	defer a.Body.Close()
	var said struct {
		Response []struct {
			Status *struct {
				ClockStatus []struct{ Frequency uint32 }
				PCIeStatus  struct {
					Speed, MaxSpeed uint32
					Bandwidth       uint64
				}
				VRAMStatus struct{ Size uint64 }
			}
			Stats *struct {
				Temperature struct {
					EdgeTemperature, JunctionTemperature, MemoryTemperature float32
					HBMTemperature                                          []float32
				}
				EnergyConsumed            float64
				UMCUncorrectableErrors    *uint64
				XGMIWAFLCorrectableErrors *uint64
				XGMILinkStats             []struct{ DataRead, DataWrite uint64 }
				Usage                     struct {
					GFXActivity               uint32
					VCNActivity, JPEGActivity []uint32
				}
			}
		}
	}
	must(t, json.NewDecoder(a.Body).Decode(&said))
	if len(said.Response) != 2 || said.Response[0].Status == nil || said.Response[1].Stats == nil {
		return fmt.Errorf("not two GPUs: %+v", said)
	}
	g := said.Response[0].Stats
	if at, err := e.scrape(t, acceptText).one(gauge, "gpu_id", "0"); err != nil || float64(g.Temperature.JunctionTemperature) != math.Round(at) {
		return fmt.Errorf("temperature %v, on the page %v %w", g.Temperature.JunctionTemperature, at, err)
	}
	if g.UMCUncorrectableErrors == nil || g.XGMIWAFLCorrectableErrors == nil {
		return errors.New("no ECC errors of blocks")
	}
	if strings.HasPrefix(gauge, "gpu_") { // all fields
		s := said.Response[0].Status
		if len(s.ClockStatus) < 9 || s.ClockStatus[0].Frequency == 0 || s.VRAMStatus.Size == 0 || len(g.XGMILinkStats) == 0 || len(g.Usage.JPEGActivity) == 0 || g.EnergyConsumed == 0 {
			return fmt.Errorf("values are missing: %+v %+v", s, g)
		}
	}
	return nil
}

// updates changes the ConfigMap: a valid one is applied, an invalid one changes nothing.
func (e *exporter) updates(t *testing.T, dir, prefix string) {
	t.Helper()
	configMap(t, dir, "config.json", `{"GPUConfig": {"Fields": ["GPU_POWER_USAGE"]}, "CommonConfig": {"MetricsFieldPrefix": "new_", "Logging": {"Level": "debug"}}, "ServerPort": 2}`)
	only := func(p page) error {
		_, err := p.one("new_gpu_power_usage", "gpu_id", "0")
		if n := len(p.family(prefix+"gpu_junction_temperature")) + len(p.family("new_gpu_health")); n > 0 {
			err = errors.Join(err, fmt.Errorf("%d series of what is no longer asked for", n))
		}
		_, ours := p.one("DCGM_FI_DEV_GPU_TEMP", "gpu", "0")
		return errors.Join(err, ours)
	}
	e.await(t, "another configuration", only)
	e.awaitLog(t, "these keys take effect at the next start")
	e.awaitLog(t, "ServerPort")
	configMap(t, dir, "config.json", `{"GPUConfig": {"Fields": "GPU_HEALTH"}}`)
	e.awaitLog(t, "GPUConfig.Fields: write a list of names")
	must(t, only(e.scrape(t, acceptText)))
}
