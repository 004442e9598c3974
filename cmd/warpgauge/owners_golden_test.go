package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	kubelet "warpgauge/pkg/podresources/podresourcestest"
)

// ownersCSV asks for what users of a shared device may have of their own, for one
// reading that they have not, and for a label.
const ownersCSV = `DCGM_FI_DEV_GPU_UTIL, gauge, Utilisation.
DCGM_FI_DEV_FB_USED, gauge, Memory in use.
DCGM_FI_DEV_FB_TOTAL, gauge, Memory.
DCGM_FI_DRIVER_VERSION, label, Driver
`

// simulatedDevices are those that the fake collector shows.
func simulatedDevices(t *testing.T, profile string, n int) (gpus, instances []collector.Device) {
	t.Helper()
	factory, err := fake.Factory(fake.Options{Profile: profile, Devices: n})
	must(t, err)
	list, _, err := field.Parse(strings.NewReader(string(etc.DefaultCounters())), field.ParseOptions{})
	must(t, err)
	c := factory()
	sources, err := c.Open(context.Background(), list)
	must(t, err)
	for _, s := range sources {
		for _, d := range s.Devices() {
			switch d.Level {
			case field.GPU:
				gpus = append(gpus, d)
			case field.Instance:
				instances = append(instances, d)
			}
		}
	}
	must(t, c.Close())
	return gpus, instances
}

const (
	nvidiaGPU = "nvidia.com/gpu"
	testNode  = "node-1"
)

// whole are four GPUs: one for a container, one for two containers of a pod, one
// for two pods, one for nobody.
func whole(gpus []collector.Device) []*v1.PodResources {
	one := func(i int) kubelet.DevicesOf { return kubelet.Devices(nvidiaGPU, gpus[i].UUID) }
	return []*v1.PodResources{
		kubelet.Pod("ml", "train-0", kubelet.Container("main", one(0)), kubelet.Container("logs")),
		kubelet.Pod("ml", "train-1", kubelet.Container("main", one(1)), kubelet.Container("eval", one(1))),
		kubelet.Pod("web", "chat-7", kubelet.Container("server", one(2))),
		kubelet.Pod("web", "chat-8", kubelet.Container("server", one(2))),
		kubelet.Pod("kube-system", "dns"),
	}
}

// shares are the same with shares of time-sliced GPUs.
func shares(gpus []collector.Device) []*v1.PodResources {
	share := func(i int, replicas ...string) kubelet.DevicesOf {
		d := kubelet.DevicesOf{Resource: "nvidia.com/gpu.shared"}
		for _, r := range replicas {
			d.IDs = append(d.IDs, gpus[i].UUID+"::"+r)
		}
		return d
	}
	return []*v1.PodResources{
		kubelet.Pod("ml", "train-0", kubelet.Container("main", share(0, "0"))),
		kubelet.Pod("ml", "train-1", kubelet.Container("main", share(1, "0", "1")), kubelet.Container("eval", share(1, "3"))),
		kubelet.Pod("web", "chat-7", kubelet.Container("server", share(2, "2"))),
		kubelet.Pod("web", "chat-8", kubelet.Container("server", share(2, "10"))),
	}
}

// TestOwnersOnThePage prints one page per way in which devices are given to pods and
// jobs: names, labels and who the device's owners are; the values of a simulation are
// nobody's concern here. Rewrite with -update.
func TestOwnersOnThePage(t *testing.T) {
	gpus, _ := simulatedDevices(t, "dgx-h100", 4)
	_, instances := simulatedDevices(t, "dgx-a100-mig", 1)
	amd, _ := simulatedDevices(t, "mi300x", 2)
	csv := tempFile(t, "counters.csv", ownersCSV)
	jobs := t.TempDir()
	writeFile(t, filepath.Join(jobs, "0"), "4711\n4712\n")
	writeFile(t, filepath.Join(jobs, "3"), "4713\n")

	migPods := []*v1.PodResources{
		kubelet.Pod("ml", "train-0", kubelet.Container("main", kubelet.Devices("nvidia.com/mig-3g.20gb", instances[0].MIGUUID))),
		kubelet.Pod("web", "chat-7", kubelet.Container("server", kubelet.Devices("nvidia.com/mig-1g.5gb", instances[2].MIGUUID+"::0"))),
		kubelet.Pod("web", "chat-8", kubelet.Container("server", kubelet.Devices("nvidia.com/mig-1g.5gb", instances[2].MIGUUID+"::1"))),
	}
	for _, c := range []struct {
		name string
		node []string // flags of the simulation
		args []string
		pods []*v1.PodResources
	}{
		{"plain", h100(4), nil, whole(gpus)},
		{"old-names", h100(4), []string{"-o"}, whole(gpus)},
		{"shared", h100(4), nil, shares(gpus)},
		{"virtual", h100(4), []string{"--kubernetes-virtual-gpus", "--process-values=false"}, shares(gpus)},
		{"device-names", h100(2), []string{"--kubernetes-virtual-gpus", "--process-values=false", "--kubernetes-gpu-id-type=device-name"}, []*v1.PodResources{
			kubelet.Pod("ml", "train-0", kubelet.Container("main", kubelet.Devices(nvidiaGPU, "nvidia0"))),
			kubelet.Pod("web", "chat-7", kubelet.Container("server", kubelet.Devices(nvidiaGPU, "nvidia1/vgpu0"))),
			kubelet.Pod("web", "chat-8", kubelet.Container("server", kubelet.Devices(nvidiaGPU, "nvidia1/vgpu1"))),
		}},
		{"mig", node("dgx-a100-mig", 1), nil, migPods},
		{"mig-virtual", node("dgx-a100-mig", 1), []string{"--kubernetes-virtual-gpus", "--process-values=false"}, migPods},
		{"amd", node("mi300x", 2), nil, []*v1.PodResources{
			kubelet.Pod("ml", "train-0", kubelet.Container("main", kubelet.Devices("amd.com/gpu", strings.ToLower(amd[1].PCIBusID[4:])))),
		}},
		{"further-resource", h100(1), []string{"--nvidia-resource-names=nvidia.com/h100"}, []*v1.PodResources{
			kubelet.Pod("ml", "train-0", kubelet.Container("main", kubelet.Devices("nvidia.com/h100", gpus[0].UUID))),
		}},
		{"jobs", h100(4), []string{"--hpc-job-mapping-dir=" + jobs}, whole(gpus)},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := kubelet.Start(t)
			k.Set(c.pods...)
			golden(t, filepath.Join("owners", c.name+".prom"), onceOwners(t, environment{"NODE_NAME": testNode}, append(append([]string{
				"-k", "--pod-resources-kubelet-socket=" + k.Socket(), "-f", csv,
			}, c.node...), c.args...)...))
		})
	}
}

func h100(n int) []string { return node("dgx-h100", n) }

func node(profile string, n int) []string {
	return []string{"--fake-profile=" + profile, fmt.Sprintf("--fake-devices=%d", n)}
}

// onceOwners is the part of a page that concerns devices and owners, without the
// values of devices.
func onceOwners(t *testing.T, env environment, args ...string) []byte {
	t.Helper()
	o := execute(t, env, simulated(append([]string{"once"}, args...)...)...)
	o.want(t, 0)
	var out strings.Builder
	for line := range strings.Lines(o.out) {
		switch series, _, _ := strings.Cut(line, "} "); {
		case strings.HasPrefix(line, "DCGM_"):
			fmt.Fprintf(&out, "%s}\n", series)
		case strings.HasPrefix(line, "warpgauge_device_owner"), strings.HasPrefix(line, "warpgauge_owner_unmatched"):
			out.WriteString(line)
		}
	}
	return []byte(out.String())
}
