package owner

import (
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

// TestParseID checks parts of IDs that TestFind does not show: shares and unusual spellings.
func TestParseID(t *testing.T) {
	f := func(text string, want deviceID) {
		t.Helper()
		got, ok := parseID(text)
		testkit.ErrorIf(t, !ok || got != want, "parseID(%q) = %+v, %v, want %+v", text, got, ok, want)
	}
	const gpu, mig = "GPU-0e1b8f3c-5d2a-4b7e-9f60-1a2b3c4d5e6f", "MIG-2ce7a541-c516-5dbc-a76e-26cc100d9b55"
	gpuName, migName := strings.ToLower(gpu), strings.ToLower(mig)

	// NVIDIA's plugin: https://github.com/NVIDIA/k8s-device-plugin, internal/rm.
	f(gpu+"::7", deviceID{form: formUUID, name: gpuName, replica: "7"})
	f(mig+"::7", deviceID{form: formMIG, name: migName, replica: "7"})
	f("MIG-"+gpu+"/13/1::2", deviceID{form: formMIGLegacy, name: gpuName, instance: "13", compute: "1", replica: "2"})
	f("all::3", deviceID{form: formAll, name: "NVIDIA", replica: "3"})
	f(gpu+"::", deviceID{form: formUUID, name: gpuName}) // an empty share
	f("all::", deviceID{form: formAll, name: "NVIDIA"})
	f("tegra", deviceID{form: formAll, name: "NVIDIA"})

	// GKE's: https://github.com/GoogleCloudPlatform/container-engine-accelerators, pkg/gpu/nvidia.
	f("nvidia1/gi13/vgpu2", deviceID{form: formNode, name: "nvidia1", instance: "13", replica: "2"})
	f("nvidia1::4", deviceID{form: formNode, name: "nvidia1", replica: "4"})
	f("0/vgpu1", deviceID{form: formIndex, name: "0", replica: "1"})
	f("3/vgpu", deviceID{form: formIndex, name: "3"})
	f("3/vgpu-x", deviceID{form: formIndex, name: "3"}) // the share has no number

	// AMD's: https://github.com/ROCm/k8s-device-plugin, internal/pkg/amdgpu.
	f("0000:3b:0a.7", deviceID{form: formPCI, name: "00000000:3B:0A.7"})
	f("00000001:3B:00.0", deviceID{form: formPCI, name: "00000001:3B:00.0"})
	f("10001:ff:1f.0", deviceID{form: formPCI, name: "00010001:FF:1F.0"}) // behind Intel's VMD
	f("amdgpu_xcp_30", deviceID{form: formPartition, name: "amdgpu_xcp_30"})
	f("GPU-5a1c0de0000000AB", deviceID{form: formUUID, name: "gpu-5a1c0de0000000ab"}) // ROCm's form of a UUID
}

func TestParseIDRefuses(t *testing.T) {
	for _, text := range []string{
		"", "0", "12", "GPU-", "MIG-", "GPU", "gpu-0e1b8f3c", "::1", "::", "GPU-abc::1::2", "GPU-abc::a b", "GPU-abc::\n", "GPU-xyz",
		"GPU-abc ", " GPU-abc", "MIG-GPU-abc", "MIG-GPU-abc/1", "MIG-GPU-abc/1/2/3", "MIG-GPU-abc/a/0", "MIG-GPU-/1/0",
		"nvidia", "nvidiactl", "nvidia-1", "nvidia0/gi", "nvidia0/gia", "nvidia0/gi1/ci0", "nvidia0/", "/vgpu1", "a/vgpu1", "nvidia1234567890",
		"0::1", "0000:19:00", "0000:19:00.8", "000:19:00.0", "000000001:19:00.0", "0000:1g:00.0", "0000:19:00.0 ", "0000-19-00.0",
		"amdgpu_xcp_", "amdgpu_xcp_a", "All", "All::1", "renderD128", "card0", "dev-1",
		strings.Repeat("9", 100), "GPU-" + strings.Repeat("a", 100), "nvidia.com/gpu",
	} {
		got, ok := parseID(text)
		testkit.ErrorIf(t, ok, "parseID(%q) = %+v, want none", text, got)
	}
}

// FuzzParseID: no text makes it panic, a parsed name is part of the text, and parsing a parsed name returns the same
// name.
func FuzzParseID(f *testing.F) {
	for _, seed := range []string{"GPU-0e1b8f3c::7", "MIG-GPU-0e/7/0", "nvidia0/gi3/vgpu1", "0/vgpu1", "0000:3b:00.0", "amdgpu_xcp_1", "all::1", "MIG-2c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := parseID(text)
		if !ok {
			return
		}
		testkit.ErrorIf(t, id.form == 0 || id.name == "" || len(id.name) > len(text)+8, "parseID(%q) = %+v", text, id)
		for _, part := range []string{id.instance, id.compute, id.replica} {
			testkit.ErrorIf(t, !strings.Contains(text, part), "parseID(%q) invents %q", text, part)
		}
		testkit.ErrorIf(t, strings.ContainsAny(id.name+id.instance+id.compute+id.replica, " \n\"\\{}=,\x00"), "parseID(%q) = %+v", text, id)
		if id.replica == "" && strings.HasSuffix(text, replicaMark) || id.form == formUUID || id.form == formMIG || id.form == formMIGLegacy || id.form == formAll { // PCI addresses are in upper case, the input need not be
			return
		}
		again := id.name
		if id.instance != "" {
			again += "/gi" + id.instance
		}
		switch {
		case id.form == formIndex:
			again += vgpuMark + id.replica
		case id.replica != "":
			again += replicaMark + id.replica
		}
		if back, ok := parseID(again); !ok || back != id {
			t.Errorf("parseID(%q) = %+v, parseID(%q) = %+v, %v", text, id, again, back, ok)
		}
	})
}
