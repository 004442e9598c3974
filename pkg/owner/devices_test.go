package owner

import (
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/kube"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/view"
)

// TestFind has a row for each form of ID and each kind of device that it can name.
func TestFind(t *testing.T) {
	n := newDevices(boardOf(machine()...).Load())
	f := func(resource, text, want, reason string) {
		t.Helper()
		id, ok := parseID(text)
		testkit.FatalIf(t, !ok, "%q is no id", text)
		found, why := n.find(resource, id)
		got := ""
		for _, d := range found {
			got += d.ID + " "
		}
		if want != "" {
			want += " "
		}
		testkit.Equal(t, resource+" "+text+" means", [2]string{want, reason}, [2]string{got, why})
	}
	const nvidia = "nvidia.com/gpu"
	f(nvidia, uuid(1), uuid(1), "")
	f(nvidia, "GPU-00000001-1111-2222-3333-44444444444A::3", uuid(1), "") // upper-case digits
	f(nvidia, uuid(7), "", reasonDevice)
	f("nvidia.com/mig-1g.10gb", mig(0), uuid(2)+"/0", "")
	f("nvidia.com/mig-1g.10gb", mig(1)+"::2", uuid(2)+"/1", "")
	f("nvidia.com/mig-1c.3g.40gb", mig(31), uuid(2)+"/3/1", "")
	f("nvidia.com/mig-1g.10gb", mig(9), "", reasonInstance)
	f(nvidia, "MIG-"+uuid(2)+"/0/0", uuid(2)+"/0", "") // the instance has only one compute instance
	f(nvidia, "MIG-"+uuid(2)+"/3/1", uuid(2)+"/3/1", "")
	f(nvidia, "MIG-"+uuid(2)+"/3/4", "", reasonInstance)
	f(nvidia, "MIG-"+uuid(2)+"/9/0", "", reasonInstance)
	f(nvidia, "MIG-"+uuid(9)+"/0/0", "", reasonDevice)
	f(nvidia, "nvidia1", uuid(1), "")
	f(nvidia, "nvidia9", "", reasonDevice)
	f(nvidia, "nvidia2/gi0", uuid(2)+"/0", "")
	f(nvidia, "nvidia2/gi3/vgpu1", uuid(2)+"/3", "")
	f(nvidia, "nvidia2/gi7", "", reasonInstance)
	f(nvidia, "nvidia0/gi0", "", reasonInstance) // never the whole GPU instead of its instance
	f(nvidia, "nvidia9/gi0", "", reasonDevice)
	f(nvidia, "1/vgpu0", uuid(1), "")
	f(nvidia, "9/vgpu0", "", reasonDevice)
	f(nvidia, "all", uuid(0)+" "+uuid(1)+" "+uuid(2), "")
	f("nvidia.com/pgpu", "0000:1b:00.0", uuid(1), "") // passed through, resource named by the user
	f("amd.com/gpu", "0000:c1:00.0", amd(0).ID, "")
	f("amd.com/gpu", "0000:C1:00.0", amd(0).ID, "")
	f("amd.com/gpu", "0000:c9:00.0", "", reasonDevice)
	f("amd.com/cpx_nps4", "0000:c2:00.0", amd(1).ID+"/0", "") // on a divided GPU, the first partition
	f("amd.com/gpu", "0000:c2:00.0", amd(1).ID+"/0", "")
	f("amd.com/cpx_nps4", "amdgpu_xcp_2", amd(1).ID+"/2", "")
	f("amd.com/cpx_nps4", "amdgpu_xcp_9", "", reasonDevice)
	f("amd.com/gpu", "nvidia0", uuid(0), "") // the resource names the other vendor

	none := newDevices(&view.View{})
	for _, text := range []string{"all", "tegra", uuid(0), "nvidia0", "0/vgpu1", "0000:c1:00.0", "amdgpu_xcp_1"} {
		id, _ := parseID(text)
		found, reason := none.find(nvidia, id)
		testkit.ErrorIf(t, len(found) != 0 || reason != reasonDevice, "without devices %s means %v (%s)", text, found, reason)
	}
}

// TestSeveralCollectors: if two collectors list a device, the first one's names win and the second one adds missing
// names.
func TestSeveralCollectors(t *testing.T) {
	plain, known := instance(gpu(0), 4, "1g.10gb", ""), instance(gpu(0), 4, "other", mig(4))
	n := newDevices(&view.View{Sources: []*view.Source{{Devices: []collector.Device{gpu(0), plain}}, {Devices: []collector.Device{gpu(0), known}}}})
	id, _ := parseID(mig(4))
	found, _ := n.find("nvidia.com/gpu", id)
	testkit.ErrorIf(t, len(found) != 1 || found[0].Instance.Profile != "1g.10gb", "found %+v", found)
	if len(n.all) != 2 || len(n.parts[uuid(0)]) != 1 || len(n.byVendor["NVIDIA"]) != 1 {
		t.Errorf("%d devices, %d instances, %d GPUs", len(n.all), len(n.parts[uuid(0)]), len(n.byVendor["NVIDIA"]))
	}
}

func TestClaimed(t *testing.T) {
	n := newDevices(boardOf(machine()...).Load())
	f := func(name string, d kube.SliceDevice, want, reason string) {
		t.Helper()
		found, why := n.claimed(d)
		got := ""
		if found != nil {
			got = found.ID
		}
		testkit.Equal(t, name+" is", [2]string{want, reason}, [2]string{got, why})
	}
	f("gpu-1", kube.SliceDevice{Kind: kube.WholeGPU, UUID: uuid(1)}, uuid(1), "")
	f("gpu-1", kube.SliceDevice{Kind: kube.WholeGPU, PCIBusID: "0000:1b:00.0"}, uuid(1), "")
	f("gpu-7", kube.SliceDevice{Kind: kube.WholeGPU, UUID: uuid(7)}, "", reasonDevice)
	f("gpu-7", kube.SliceDevice{Kind: kube.WholeGPU}, "", reasonDevice)
	f("gpu-vfio-0", kube.SliceDevice{UUID: uuid(0)}, uuid(0), "")
	f("gpu-2-mig-9-4-1", kube.SliceDevice{Kind: kube.MIGDevice, UUID: mig(1), ParentUUID: uuid(2), Profile: "2g.20gb"}, uuid(2)+"/1", "")
	f("gpu-2-mig-9-4-1", kube.SliceDevice{Kind: kube.MIGDevice, UUID: mig(77), ParentUUID: uuid(2)}, "", reasonInstance)
	// An instance created on demand is identified only if the GPU has just one instance of that profile.
	f("gpu-2-mig-1g10gb-0", kube.SliceDevice{Kind: kube.MIGDevice, ParentUUID: uuid(2), Profile: "1g.10gb"}, uuid(2)+"/0", "")
	f("gpu-2-mig-7g80gb-0", kube.SliceDevice{Kind: kube.MIGDevice, ParentUUID: uuid(2), Profile: "7g.80gb"}, "", reasonInstance)
	f("gpu-2-mig-x", kube.SliceDevice{Kind: kube.MIGDevice, ParentUUID: uuid(2)}, "", reasonInstance)
	f("gpu-9-mig-x", kube.SliceDevice{Kind: kube.MIGDevice, ParentUUID: uuid(9), Profile: "1g.10gb"}, "", reasonDevice)

	f("gpu-1-128", kube.SliceDevice{Kind: kube.WholeGPU, PCIBusID: "0000:c1:00.0"}, amd(0).ID, "")
	f("gpu-3-130", kube.SliceDevice{Kind: kube.GPUPartition, PCIBusID: "0000:c2:00.0", RenderNode: "renderD130"}, amd(1).ID+"/1", "")
	f("any", kube.SliceDevice{Kind: kube.GPUPartition, PCIBusID: "0000:c2:00.0", RenderNode: "renderD131"}, amd(1).ID+"/2", "")
	f("gpu-3-199", kube.SliceDevice{Kind: kube.GPUPartition, PCIBusID: "0000:c2:00.0", RenderNode: "renderD199"}, "", reasonInstance)
	f("gpu-1-cpx-nps4", kube.SliceDevice{Kind: kube.GPUPartition, PCIBusID: "0000:c2:00.0"}, "", reasonInstance) // one of several partitions, unknown which
	f("gpu-3-130", kube.SliceDevice{Kind: kube.GPUPartition, PCIBusID: "0000:c9:00.0"}, "", reasonDevice)
	f("gpu-3-130", kube.SliceDevice{Kind: kube.GPUPartition, PCIBusID: "bad"}, "", reasonDevice)

	twice := append(machine(), instance(gpu(2), 5, "1g.10gb", mig(5)))
	n = newDevices(boardOf(twice...).Load())
	f("gpu-2-mig-1g10gb-0", kube.SliceDevice{Kind: kube.MIGDevice, ParentUUID: uuid(2), Profile: "1g.10gb"}, "", reasonInstance)
}

// TestMIGUUIDsAreRemembered: after a failover the new collector may not report them.
func TestMIGUUIDsAreRemembered(t *testing.T) {
	known, plain := machine(), machine()
	for i := range plain {
		plain[i].Instance.UUID = ""
	}
	r := newRig(nil, known...).give("ml/a/main: nvidia.com/mig-1g.10gb " + mig(0))
	check := func(what string) {
		t.Helper()
		r.wants(t, what, uuid(2)+"/0", "container=main namespace=ml pod=a")
	}
	check("told")
	version := r.Version()
	r.board.Store(&view.View{Version: 2, Sources: []*view.Source{{Devices: plain}}})
	check("no longer told")
	testkit.Equal(t, "version, though no answer differs", version, r.Version())
	r.board.Store(&view.View{Version: 3, Sources: []*view.Source{{Devices: []collector.Device{gpu(2)}}}})
	testkit.Equal(t, "ids without a device, as the instance is gone", 1, len(r.Unmatched()))
	r.board.Store(&view.View{Version: 4, Sources: []*view.Source{{Devices: plain}}})
	check("back again")
}
