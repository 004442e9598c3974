package owner

import (
	"strings"
	"testing"
)

// TestParseID has a row for each form that a device plugin uses.
func TestParseID(t *testing.T) {
	f := func(text string, want ID) {
		t.Helper()
		got, ok := ParseID(text)
		if !ok || got != want {
			t.Errorf("ParseID(%q) = %+v, %v, want %+v", text, got, ok, want)
		}
	}
	const gpu, mig = "GPU-0e1b8f3c-5d2a-4b7e-9f60-1a2b3c4d5e6f", "MIG-2ce7a541-c516-5dbc-a76e-26cc100d9b55"
	gpuName, migName := strings.ToLower(gpu), strings.ToLower(mig)

	// NVIDIA's plugin: https://github.com/NVIDIA/k8s-device-plugin, internal/rm.
	f(gpu, ID{Form: FormUUID, Name: gpuName})
	f(gpu+"::7", ID{Form: FormUUID, Name: gpuName, Replica: "7"})
	f(gpu+"::0", ID{Form: FormUUID, Name: gpuName, Replica: "0"})
	f(mig, ID{Form: FormMIG, Name: migName})
	f(mig+"::7", ID{Form: FormMIG, Name: migName, Replica: "7"})
	f("MIG-"+gpu+"/7/0", ID{Form: FormMIGLegacy, Name: gpuName, Instance: "7", Compute: "0"})
	f("MIG-"+gpu+"/13/1::2", ID{Form: FormMIGLegacy, Name: gpuName, Instance: "13", Compute: "1", Replica: "2"})
	f("all", ID{Form: FormAll, Name: "all"}) // WSL
	f("all::3", ID{Form: FormAll, Name: "all", Replica: "3"})
	f("tegra", ID{Form: FormAll, Name: "tegra"})

	// GKE's: https://github.com/GoogleCloudPlatform/container-engine-accelerators, pkg/gpu/nvidia.
	f("nvidia0", ID{Form: FormNode, Name: "nvidia0"})
	f("nvidia12", ID{Form: FormNode, Name: "nvidia12"})
	f("nvidia0/gi3", ID{Form: FormNode, Name: "nvidia0", Instance: "3"})
	f("nvidia1/vgpu2", ID{Form: FormNode, Name: "nvidia1", Replica: "2"})
	f("nvidia1/gi13/vgpu2", ID{Form: FormNode, Name: "nvidia1", Instance: "13", Replica: "2"})
	f("nvidia1::4", ID{Form: FormNode, Name: "nvidia1", Replica: "4"})
	f("0/vgpu1", ID{Form: FormIndex, Name: "0", Replica: "1"})
	f("3/vgpu", ID{Form: FormIndex, Name: "3"})
	f("3/vgpu-x", ID{Form: FormIndex, Name: "3"}) // no number follows

	// AMD's: https://github.com/ROCm/k8s-device-plugin, internal/pkg/amdgpu.
	f("0000:19:00.0", ID{Form: FormPCI, Name: "00000000:19:00.0"})
	f("0000:3b:0a.7", ID{Form: FormPCI, Name: "00000000:3B:0A.7"})
	f("00000001:3B:00.0", ID{Form: FormPCI, Name: "00000001:3B:00.0"})
	f("10001:ff:1f.0", ID{Form: FormPCI, Name: "00010001:FF:1F.0"}) // behind Intel's VMD
	f("amdgpu_xcp_30", ID{Form: FormPartition, Name: "amdgpu_xcp_30"})
	f("GPU-5a1c0de0000000AB", ID{Form: FormUUID, Name: "gpu-5a1c0de0000000ab"}) // ROCm's form of a UUID
}

func TestParseIDRefuses(t *testing.T) {
	for _, text := range []string{
		"", "0", "12", "GPU-", "MIG-", "GPU", "gpu-0e1b8f3c", "::1", "::", "GPU-abc::1::2", "GPU-abc::a b", "GPU-abc::\n", "GPU-xyz",
		"GPU-abc ", " GPU-abc", "MIG-GPU-abc", "MIG-GPU-abc/1", "MIG-GPU-abc/1/2/3", "MIG-GPU-abc/a/0", "MIG-GPU-/1/0",
		"nvidia", "nvidiactl", "nvidia-1", "nvidia0/gi", "nvidia0/gia", "nvidia0/gi1/ci0", "nvidia0/", "/vgpu1", "a/vgpu1", "nvidia1234567890",
		"0::1", "0000:19:00", "0000:19:00.8", "000:19:00.0", "000000001:19:00.0", "0000:1g:00.0", "0000:19:00.0 ", "0000-19-00.0",
		"amdgpu_xcp_", "amdgpu_xcp_a", "All", "all::", "All::1", "renderD128", "card0", "dev-1",
		strings.Repeat("9", 100), "GPU-" + strings.Repeat("a", 100), "nvidia.com/gpu",
	} {
		if got, ok := ParseID(text); ok {
			t.Errorf("ParseID(%q) = %+v, want none", text, got)
		}
	}
}

// FuzzParseID: no text makes it panic, what it finds is part of the text, and what
// it made of a text it makes of what it found.
func FuzzParseID(f *testing.F) {
	for _, seed := range []string{"GPU-0e1b8f3c::7", "MIG-GPU-0e/7/0", "nvidia0/gi3/vgpu1", "0/vgpu1", "0000:3b:00.0", "amdgpu_xcp_1", "all::1", "MIG-2c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := ParseID(text)
		if !ok {
			return
		}
		if id.Form == 0 || id.Name == "" || len(id.Name) > len(text)+8 {
			t.Errorf("ParseID(%q) = %+v", text, id)
		}
		for _, part := range []string{id.Instance, id.Compute, id.Replica} {
			if !strings.Contains(text, part) {
				t.Errorf("ParseID(%q) invents %q", text, part)
			}
		}
		if strings.ContainsAny(id.Name+id.Instance+id.Compute+id.Replica, " \n\"\\{}=,\x00") {
			t.Errorf("ParseID(%q) = %+v", text, id)
		}
		if id.Form == FormUUID || id.Form == FormMIG || id.Form == FormMIGLegacy { // they are written in upper case, Name is not
			return
		}
		again := id.Name
		if id.Instance != "" {
			again += "/gi" + id.Instance
		}
		switch {
		case id.Form == FormIndex:
			again += vgpuMark + id.Replica
		case id.Replica != "":
			again += replicaMark + id.Replica
		}
		if back, ok := ParseID(again); !ok || back != id {
			t.Errorf("ParseID(%q) = %+v, ParseID(%q) = %+v, %v", text, id, again, back, ok)
		}
	})
}

func TestKeep(t *testing.T) {
	keep := Keep([]string{"example.com/gpu", "nvidia.com/rtx"})
	f := func(resource string, want bool) {
		t.Helper()
		if got := keep(resource); got != want {
			t.Errorf("%s counts: %v, want %v", resource, got, want)
		}
	}
	for _, r := range []string{
		"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.shared", "nvidia.com/mig-3g.20gb.me",
		"amd.com/gpu", "amd.com/spx_nps1", "amd.com/cpx_nps4", "amd.com/dpx_nps2", "amd.com/qpx_nps1", "example.com/gpu", "nvidia.com/rtx",
	} {
		f(r, true)
	}
	for _, r := range []string{
		"", "cpu", "gpu", "nvidia.com/", "nvidia.com/gpu-memory", "nvidia.com/gpux", "nvidia.com/pgpu", "nvidia.com/GA102GL_A10", "amd.com/", "amd.com/cpu",
		"amd.com/cpx", "amd.com/cpx_nps", "amd.com/cpx_npsa", "amd.com/_nps4", "amd.com/ps_nps4", "amd.com/CPX_NPS4", "amd.com/nic", "example.com/gpus", "rdma/hca",
	} {
		f(r, false)
	}
	if Keep(nil)("example.com/gpu") {
		t.Error("a resource counts that nobody named")
	}
	for driver, want := range map[string]bool{"gpu.nvidia.com": true, "gpu.amd.com": true, "compute-domain.nvidia.com": false, "": false, "dra.net": false} {
		if got := KeepDriver(driver); got != want {
			t.Errorf("driver %q counts: %v, want %v", driver, got, want)
		}
	}
}
