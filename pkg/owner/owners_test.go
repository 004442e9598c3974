package owner

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/kube"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestModes checks the owner labels of a shared device, for each way of sharing and each mode.
func TestModes(t *testing.T) {
	f := func(what string, given []string, device string, plain, virtualised []string) {
		t.Helper()
		for _, c := range []struct {
			mode   string
			change func(*Options)
			want   []string
		}{{"plain", withoutProcesses, plain}, {"virtual", all(virtual, withoutProcesses), virtualised}} {
			r := newRig(c.change, machine()...).give(given...)
			r.wants(t, what+", "+c.mode, device, c.want...)
			testkit.Equal(t, fmt.Sprintf("%s: number of unmatched %+v", what, r.Unmatched()), 0, len(r.Unmatched()))
		}
	}
	const res = "nvidia.com/gpu "
	main := []string{"container=main namespace=ml pod=a"}
	f("no pod", nil, uuid(0), nil, nil)
	f("one container", []string{"ml/a/main: " + res + uuid(0)}, uuid(0), main, main)
	f("another's device", []string{"ml/a/main: " + res + uuid(0)}, uuid(1), nil, nil)
	f("a share", []string{"ml/a/main: " + res + uuid(0) + "::3"}, uuid(0), main, []string{"container=main namespace=ml pod=a vgpu=3"})
	f("two shares of one container", []string{"ml/a/main: " + res + uuid(0) + "::10 " + uuid(0) + "::3"}, uuid(0), main,
		[]string{"container=main namespace=ml pod=a vgpu=3", "container=main namespace=ml pod=a vgpu=10"})
	f("two containers of a pod", []string{"ml/a/main: " + res + uuid(0), "ml/a/side: " + res + uuid(0)}, uuid(0),
		[]string{"namespace=ml pod=a"}, []string{"container=main namespace=ml pod=a", "container=side namespace=ml pod=a"})
	f("two pods", []string{"ml/a/main: " + res + uuid(0) + "::0", "ml/b/main: " + res + uuid(0) + "::1"}, uuid(0),
		nil, []string{"container=main namespace=ml pod=a vgpu=0", "container=main namespace=ml pod=b vgpu=1"})
	f("two pods of one name", []string{"ml/a/main: " + res + uuid(0) + "::0", "qa/a/main: " + res + uuid(0) + "::1"}, uuid(0),
		nil, []string{"container=main namespace=ml pod=a vgpu=0", "container=main namespace=qa pod=a vgpu=1"})
	f("a container with all", []string{"ml/a/main: " + res + uuid(0) + " " + uuid(1)}, uuid(1), main, main)
	f("GKE's shares", []string{"ml/a/main: " + res + "nvidia0/vgpu0", "ml/b/main: " + res + "nvidia0/vgpu1"}, uuid(0),
		nil, []string{"container=main namespace=ml pod=a vgpu=0", "container=main namespace=ml pod=b vgpu=1"})
	f("one device under two names", []string{"ml/a/main: " + res + uuid(0) + " nvidia0"}, uuid(0), main, main)

	// MIG: pods on an instance are not on its GPU's series.
	migs := []string{"ml/a/main: nvidia.com/mig-1g.10gb " + mig(0), "ml/b/main: nvidia.com/mig-2g.20gb " + mig(1)}
	f("an instance", migs, uuid(2)+"/0", main, main)
	f("the GPU of instances", migs, uuid(2), nil, nil)
	f("a link of the GPU of instances", migs, uuid(2)+"/link1", nil, nil)
	f("the only instance in use", migs[:1], uuid(2), nil, nil)
	f("shares of an instance", []string{"ml/a/main: nvidia.com/mig-1g.10gb " + mig(0) + "::0", "ml/b/main: nvidia.com/mig-1g.10gb " + mig(0) + "::1"}, uuid(2)+"/0",
		nil, []string{"container=main namespace=ml pod=a vgpu=0", "container=main namespace=ml pod=b vgpu=1"})
	f("the whole of a divided GPU", []string{"ml/a/main: " + res + uuid(2)}, uuid(2), main, main)
	f("an instance of a GPU that is given whole", []string{"ml/a/main: " + res + uuid(2)}, uuid(2)+"/0", nil, nil)
	f("a compute instance", []string{"ml/a/main: " + res + mig(30), "ml/b/main: " + res + mig(31)}, uuid(2)+"/3/0", main, main)
	f("the instance of compute instances", []string{"ml/a/main: " + res + mig(30), "ml/b/main: " + res + mig(31)}, uuid(2)+"/3", nil, nil)
	f("a compute instance of an instance that is given whole", []string{"ml/a/main: " + res + "nvidia2/gi3"}, uuid(2)+"/3/1", main, main)
	f("a compute instance of which another is given", []string{"ml/a/main: " + res + mig(30)}, uuid(2)+"/3/1", nil, nil)
	f("a link", []string{"ml/a/main: " + res + uuid(0)}, uuid(0)+"/link1", main, main)
	f("a switch", []string{"ml/a/main: " + res + uuid(0)}, "nvswitch0", nil, nil)

	f("WSL", []string{"ml/a/main: " + res + "all"}, uuid(1), main, main)
	f("shares of WSL", []string{"ml/a/main: " + res + "all::0", "ml/b/main: " + res + "all::1"}, uuid(1),
		nil, []string{"container=main namespace=ml pod=a vgpu=0", "container=main namespace=ml pod=b vgpu=1"})
}

func TestClaims(t *testing.T) {
	labels := func(driver, device, more string) string {
		return "dra_claim_namespace=ml dra_device_name=" + device + " dra_driver_name=" + driver + more + " dra_pool_name=node-1 namespace=ml pod=a"
	}
	named := "dra_claim_name=c1 " + labels("gpu.nvidia.com", "gpu-0", "")
	claims := func(change func(*Options), given ...string) *rig {
		return newRig(change, machine()...).describe("gpu.nvidia.com", "gpu-0", kube.SliceDevice{Kind: kube.WholeGPU, UUID: uuid(0)}).
			describe("gpu.nvidia.com", "gpu-2-mig-x", kube.SliceDevice{Kind: kube.MIGDevice, UUID: mig(1), ParentUUID: uuid(2), Profile: "2g.20gb"}).
			describe("gpu.amd.com", "gpu-3-130", kube.SliceDevice{Kind: kube.GPUPartition, PCIBusID: "0000:c2:00.0", Profile: "cpx_nps4", RenderNode: "renderD130"}).
			give(given...)
	}
	one, side, other := "ml/a/main: claim=c1 gpu.nvidia.com node-1 gpu-0", "ml/a/side: claim=c1 gpu.nvidia.com node-1 gpu-0", "ml/b/main: claim=c1 gpu.nvidia.com node-1 gpu-0"
	r := claims(nil, one)
	r.wants(t, "a GPU", uuid(0), "container=main "+named)
	r.wants(t, "one that is not claimed", uuid(1))
	claims(func(o *Options) { o.Claims = false }, one).wants(t, "claims do not count", uuid(0))
	claims(nil, one, side).wants(t, "one claim of two containers", uuid(0), named)
	claims(nil, one, other).wants(t, "one claim of two pods", uuid(0))
	claims(virtual, one, other).wants(t, "one claim of two pods, virtual", uuid(0), "container=main "+named, "container=main "+strings.Replace(named, "pod=a", "pod=b", 1))
	// Two claims of one container: only common labels are shown.
	claims(nil, one, strings.Replace(one, "c1", "c2", 1)).wants(t, "two claims", uuid(0), "container=main "+labels("gpu.nvidia.com", "gpu-0", ""))
	r = claims(nil, "ml/a/main: claim=c1 gpu.nvidia.com node-1 gpu-2-mig-x")
	r.wants(t, "an instance", uuid(2)+"/1", "container=main dra_claim_name=c1 "+labels("gpu.nvidia.com", "gpu-2-mig-x", " dra_mig_device_uuid="+mig(1)+" dra_mig_profile=2g.20gb"))
	r.wants(t, "its GPU", uuid(2))
	claims(nil, "ml/a/main: claim=c1 gpu.amd.com node-1 gpu-3-130").wants(t, "AMD's partition", amd(1).ID+"/1", "container=main dra_claim_name=c1 "+labels("gpu.amd.com", "gpu-3-130", ""))
	testkit.Equal(t, "ids of a driver that does not count", 0, len(claims(nil, "ml/a/main: claim=c1 compute-domain.nvidia.com node-1 channel-0").Unmatched()))

	// A pod whose claim only observes all GPUs, such as the GPU Operator's host engine.
	looks := map[kube.ClaimName][]kube.DeviceName{{Namespace: "ml", Name: "c1"}: nil, {Namespace: "op", Name: "all"}: {{Driver: "gpu.nvidia.com", Pool: "node-1", Device: "gpu-0"}}}
	r = claims(nil, one, "op/dcgm/main: claim=all gpu.nvidia.com node-1 gpu-0")
	r.wants(t, "not known that it only looks", uuid(0))
	r.tell(func(m *kube.Metadata) { m.Claims = maps.Clone(looks) }).wants(t, "it looks", uuid(0), "container=main "+named)
	delete(looks, kube.ClaimName{Namespace: "ml", Name: "c1"})
	r.tell(func(m *kube.Metadata) { m.Claims = looks }).wants(t, "the user's claim has not been read", uuid(0))
}

func TestJobs(t *testing.T) {
	r := newRig(nil, machine()...).schedule(map[string][]string{"0": {"17", "9"}, "2": {"20"}, "2.0": {"21"}, "2.3": {"22"}})
	r.wants(t, "two jobs, in the file's order", uuid(0), "hpc_job=17", "hpc_job=9")
	r.wants(t, "a link", uuid(0)+"/link1", "hpc_job=17", "hpc_job=9")
	r.wants(t, "no job", uuid(1))
	r.wants(t, "a GPU of instances", uuid(2), "hpc_job=20")
	r.wants(t, "an instance", uuid(2)+"/0", "hpc_job=21")
	r.wants(t, "an instance without a file", uuid(2)+"/1") // the GPU's job does not apply to the instance
	r.wants(t, "a compute instance", uuid(2)+"/3/1", "hpc_job=22")
	r.wants(t, "a switch", "nvswitch0")

	r.give("ml/a/main: nvidia.com/gpu " + uuid(0))
	r.wants(t, "pods and jobs", uuid(0), "container=main hpc_job=17 namespace=ml pod=a", "container=main hpc_job=9 namespace=ml pod=a")
	r.give("ml/a/main: nvidia.com/gpu "+uuid(0), "ml/b/main: nvidia.com/gpu "+uuid(0))
	r.wants(t, "several pods and jobs", uuid(0), "hpc_job=17", "hpc_job=9")

	v := newRig(virtual, machine()...).schedule(map[string][]string{"0": {"1", "2"}}).give("ml/a/main: nvidia.com/gpu "+uuid(0), "ml/b/main: nvidia.com/gpu "+uuid(0))
	v.wants(t, "copies for pods and jobs", uuid(0),
		"container=main hpc_job=1 namespace=ml pod=a", "container=main hpc_job=2 namespace=ml pod=a",
		"container=main hpc_job=1 namespace=ml pod=b", "container=main hpc_job=2 namespace=ml pod=b")
}

// TestTooManyUsers: 10,000 pods on a device cost half a second and 57 MB per page. Such a device shows no
// users, but it still counts as used.
func TestTooManyUsers(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	core, logs := observer.New(zap.InfoLevel)
	r := newRig(all(virtual, func(o *Options) { o.Registerer, o.Log = registry, zap.New(core) }), machine()...)
	for _, tt := range []struct{ users, jobs, named int }{{maxOwners, 1, maxOwners}, {10000, 1, 0}, {3, 100, 0}, {1, 1, 1}} {
		lines, jobs := []string{"ml/other/main: nvidia.com/gpu " + uuid(1)}, []string{}
		for i := range tt.users {
			lines = append(lines, fmt.Sprintf("ml/pod-%d/main: nvidia.com/gpu %s::%d", i, uuid(0), i))
		}
		for i := range tt.jobs {
			jobs = append(jobs, fmt.Sprint(i))
		}
		r.set(lines...)
		r.schedule(map[string][]string{"0": jobs})
		got, other := len(r.owners(t, uuid(0))), len(r.owners(t, uuid(1)))
		testkit.ErrorIf(t, got != tt.named || other != 1, "%+v: %d are on the series, %d on another device's; want %d and 1", tt, got, other, tt.named)
		testkit.Equal(t, fmt.Sprintf("users of %+v", tt), tt.users+tt.jobs, len(r.Users(r.device(t, uuid(0)))))
		want := 1 + tt.jobs // the other device, and the first AMD GPU, whose index matches the job file too
		if tt.named > 0 {
			want += tt.users + tt.jobs
		}
		n, err := testutil.GatherAndCount(registry, "warpgauge_device_owner")
		testkit.ErrorIf(t, n != want || err != nil, "%+v: %d series, want %d; %v", tt, n, want, err)
	}
	testkit.Equal(t, fmt.Sprintf("lines of the log, one for the device: %v", logs.All()), 1, logs.FilterMessageSnippet("too many users").Len())
}

// TestOwnPod: an exporter that claims every device does not count as a user, also if its namespace is unknown.
func TestOwnPod(t *testing.T) {
	f := func(own kube.PodName, namesake ...string) {
		t.Helper()
		r := newRig(func(o *Options) { o.OwnPod = own }, machine()...).
			give("ml/a/main: nvidia.com/gpu "+uuid(0), "mon/x/main: nvidia.com/gpu "+uuid(0), "ml/x/main: nvidia.com/gpu "+uuid(1))
		r.wants(t, "the device of a user", uuid(0), "container=main namespace=ml pod=a")
		r.wants(t, "the device of a namesake", uuid(1), namesake...)
	}
	f(kube.PodName{Namespace: "mon", Name: "x"}, "container=main namespace=ml pod=x")
	f(kube.PodName{Name: "x"})
}

func TestDescribe(t *testing.T) {
	r := newRig(nil, machine()...).describe("gpu.nvidia.com", "gpu-1", kube.SliceDevice{Kind: kube.WholeGPU, UUID: uuid(1)}).
		give("ml/a/main: nvidia.com/gpu.shared "+uuid(0)+"::3", "ml/b/main: claim=c1 gpu.nvidia.com node-1 gpu-1").
		schedule(map[string][]string{"0": {"4711"}})
	f := func(device string, want ...string) {
		t.Helper()
		testkit.Equal(t, device, want, r.Describe(r.device(t, device)))
	}
	f(uuid(0), "pod ml/a, container main (share 3, nvidia.com/gpu.shared)", "job 4711")
	f(uuid(0)+"/link1", "pod ml/a, container main (share 3, nvidia.com/gpu.shared)", "job 4711")
	f(uuid(1), "pod ml/b, container main (gpu.nvidia.com, claim ml/c1)")
	f(uuid(2))
}
