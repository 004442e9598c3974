package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"

	"github.com/google/go-cmp/cmp"
)

// readFile converts a file of testdata, which holds one slice as the API server sends it.
func readFile(t *testing.T, file string) slice {
	t.Helper()
	text := testkit.Get(os.ReadFile(filepath.Join("testdata", file)))(t)
	var o apiObject
	must(t, decode(text, &o))
	s, ok := readSlice(&o.Spec)
	testkit.FatalIf(t, !ok, "%s is not read", file)
	return s
}

const nvidiaDriver, amdDriver = "gpu.nvidia.com", "gpu.amd.com"

func TestWhatDriversPublish(t *testing.T) {
	const gpu, mig = "GPU-a15aaed3-d4e7-dde0-adcd-4432a8caf752", "MIG-9c3fe4f4-b18b-5fd8-8383-b47d7fe47736"
	for _, test := range []struct {
		file string
		want slice
	}{
		{"nvidia-25.3-v1beta1.json", slice{nvidiaDriver, "node-1", 1, []namedDevice{
			{"gpu-0", SliceDevice{Kind: WholeGPU, UUID: gpu, PCIBusID: "0000:d8:00.0"}},
			{"gpu-1-mig-19-4-1", SliceDevice{Kind: MIGDevice, UUID: mig, ParentUUID: gpu, Profile: "1g.10gb", PCIBusID: "0000:d9:00.0"}},
		}}},
		{"nvidia-2026-v1.json", slice{nvidiaDriver, "node-1", 3, []namedDevice{
			{"gpu-0", SliceDevice{Kind: WholeGPU, UUID: gpu, PCIBusID: "0000:d8:00.0"}},
			{"gpu-0-mig-1g12gb-19-0", SliceDevice{Kind: MIGDevice, ParentUUID: gpu, Profile: "1g.12gb", PCIBusID: "0000:d8:00.0"}},
			{"gpu-0-mig-1g24gb-me-20-5", SliceDevice{Kind: MIGDevice, ParentUUID: gpu, Profile: "1g.24gb+me", PCIBusID: "0000:d8:00.0"}},
			{"gpu-vfio-1", SliceDevice{UUID: "GPU-b", PCIBusID: "0000:d9:00.0"}},
		}}},
		{"amd-0.1-v1beta1.json", slice{amdDriver, "node-1", 1, []namedDevice{
			{"gpu-32-160", SliceDevice{Kind: GPUPartition, Profile: "dpx_nps1", PCIBusID: "0003:00:01.0", RenderNode: "renderD160"}},
			{"gpu-1-128", SliceDevice{Kind: WholeGPU, Profile: "spx_nps1", PCIBusID: "0000:0c:00.0"}},
		}}},
		{"amd-1.0-v1.json", slice{amdDriver, "node-1", 1, []namedDevice{
			{"gpu-0-128", SliceDevice{Kind: WholeGPU, PCIBusID: "0000:19:00.0"}},
			{"gpu-2-cpx-nps4", SliceDevice{Kind: GPUPartition, Profile: "cpx_nps4", PCIBusID: "0000:1b:00.0"}},
			{"vfio-0", SliceDevice{PCIBusID: "0000:1b:02.0"}},
		}}},
	} {
		testkit.Equal(t, test.file, test.want, readFile(t, test.file), cmp.AllowUnexported(slice{}, namedDevice{}))
	}
}

func TestAttributesWithAndWithoutADomain(t *testing.T) {
	f := func(vendor *field.Vendor, name, text string, want SliceDevice) {
		t.Helper()
		var a attributes
		must(t, decode([]byte(text), &a))
		testkit.Equal(t, text, want, readDevice(vendor, name, a))
	}
	f(field.VendorNVIDIA, "x", `{"uuid": {"string": "a"}}`, SliceDevice{UUID: "a"})
	f(field.VendorNVIDIA, "x", `{"gpu.nvidia.com/uuid": {"string": "a"}, "gpu.nvidia.com/type": {"string": "mig"}}`, SliceDevice{UUID: "a", Kind: MIGDevice})
	f(field.VendorNVIDIA, "x", `{"gpu.amd.com/uuid": {"string": "a"}}`, SliceDevice{})
	f(field.VendorNVIDIA, "x", `{"uuid": {"int": 3}, "type": {"string": "tpu"}, "profile": {"string": 7}}`, SliceDevice{})
	f(field.VendorNVIDIA, "x", `{"uuid": {"string": "`+strings.Repeat("x", 300)+`"}}`, SliceDevice{})
	f(field.VendorNVIDIA, "x", `{"uuid": null, "type": "gpu", "profile": {"string": null}}`, SliceDevice{})
	f(field.VendorNVIDIA, "x", `null`, SliceDevice{})
	const part = `"type": {"string": "amdgpu-partition"}`
	f(field.VendorAMD, "gpu-1-129", `{`+part+`}`, SliceDevice{Kind: GPUPartition, RenderNode: "renderD129"})
	f(field.VendorAMD, "gpu-1-129", `{`+part+`, "renderIndex": {"int": 130}}`, SliceDevice{Kind: GPUPartition, RenderNode: "renderD130"})
	f(field.VendorAMD, "gpu-1-cpx-nps4", `{`+part+`}`, SliceDevice{Kind: GPUPartition})
	f(field.VendorAMD, "gpu-1-x", `{`+part+`, "renderIndex": {"string": "1"}}`, SliceDevice{Kind: GPUPartition})
	f(field.VendorAMD, "gpu-1-129", `{"type": {"string": "amdgpu"}, "computePartition": {"string": "spx"}, "memoryPartition": {"string": "nps1"}}`,
		SliceDevice{Kind: WholeGPU, Profile: "spx_nps1"})
}

// FuzzSlice decodes arbitrary slices. The results are safe as label values, and devices stay when their slice disappears.
func FuzzSlice(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	testkit.FatalIf(f, err != nil || len(files) == 0, "no examples: %v", err)
	for _, file := range files {
		text := testkit.Get(os.ReadFile(file))(f)
		f.Add(text)
	}
	f.Add([]byte(`{"spec":{"driver":"gpu.nvidia.com","pool":{"name":"n","generation":1e300,"resourceSliceCount":-1},"devices":[{"name":"gpu-0-mig-1g-1-1","attributes":{"index":{"int":1.5}}},3,null]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var o apiObject
		if decode(text, &o) != nil {
			return
		}
		s, ok := readSlice(&o.Spec)
		if !ok {
			testkit.FatalIf(t, s.devices != nil, "devices of a slice that is not read")
			return
		}
		safe := func(texts ...string) {
			for _, text := range texts {
				testkit.FatalIf(t, !utf8.ValidString(text) || len(text) > 253, "unsafe text %q", text)
			}
		}
		safe(s.driver, s.pool)
		for _, d := range s.devices {
			safe(d.name, d.UUID, d.ParentUUID, d.Profile, d.PCIBusID, d.RenderNode)
			testkit.FatalIf(t, d.name == "", "device %+v", d)
		}
		joined := joinSlices(map[string]slice{"a": s}, nil)
		testkit.FatalIf(t, len(joined) > len(s.devices), "%d devices out of %d", len(joined), len(s.devices))
		testkit.Equal(t, "devices that stay", min(len(joined), maxWithdrawn), len(joinSlices(nil, joined)))
	})
}
