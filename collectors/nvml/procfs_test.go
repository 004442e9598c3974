//go:build linux && cgo

package nvml

import (
	"testing"

	"warpgauge/internal/testkit/tree"

	"github.com/google/go-cmp/cmp"
)

func TestParsePCI(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		a, ok := parsePCI(in)
		if got := a.String(); ok != (want != "") || ok && got != want {
			t.Errorf("parsePCI(%q) = %s, %v; want %q", in, got, ok, want)
		}
	}
	f("0000:3b:00.0", "00000000:3B:00.0")
	f("00000000:3B:00.0", "00000000:3B:00.0")
	f("0009:01:00.0", "00000009:01:00.0")
	f("10000:e1:1f.0", "00010000:E1:1F.0") // behind a VMD controller
	f("0000:3b:00.1", "")
	f("3b:00.0", "")
	f("", "")
}

func information(uuid, minor, excluded string) string {
	return "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 255\nGPU UUID: \t " + uuid + "\nVideo BIOS: \t 92.00.36.00.01\n" +
		"Bus Type: \t PCIe\nBus Location: \t 0000:07:00.0\nDevice Minor: \t " + minor + "\nGPU Excluded:\t " + excluded + "\n"
}

func TestKernelGPUs(t *testing.T) {
	root := tree.Write(t, map[string]string{
		"proc/driver/nvidia/gpus/0000:3b:00.0/information": information("GPU-b", "1", "No"),
		"proc/driver/nvidia/gpus/0000:07:00.0/information": information("GPU-a", "0", "No"),
		"proc/driver/nvidia/gpus/0000:86:00.0/information": information("GPU-c", "2", "Yes"),
		"proc/driver/nvidia/gpus/0000:af:00.0/information": information("GPU-????????-????-????-????-????????????", "3", "No"),
		"proc/driver/nvidia/gpus/0001:01:00.0/registry":    "", // without a file "information"
		"proc/driver/nvidia/gpus/README":                   "",
	})
	const model = "NVIDIA A100-SXM4-40GB"
	want := []kernelGPU{
		{pciAddress{0, 0x07, 0}, "GPU-a", model, "0"},
		{pciAddress{0, 0x3b, 0}, "GPU-b", model, "1"},
		{pciAddress{0, 0xaf, 0}, "", model, "3"},
		{pciAddress{1, 0x01, 0}, "", "", ""},
	}
	if diff := cmp.Diff(want, kernelGPUs(root), cmp.AllowUnexported(kernelGPU{}, pciAddress{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := kernelGPUs(t.TempDir()); got != nil {
		t.Errorf("without a driver: %v", got)
	}
}

// The address of an index that NVML has not answered for is zero.
func TestIdentifyRest(t *testing.T) {
	f := func(what string, buses, kernel []uint32, want map[int]uint32) {
		t.Helper()
		unknown, at := make([]bool, len(buses)), make([]pciAddress, len(buses))
		for i, b := range buses {
			unknown[i], at[i].bus = b == 0, b
		}
		var known []kernelGPU
		for _, b := range kernel {
			known = append(known, kernelGPU{at: pciAddress{bus: b}})
		}
		got := map[int]uint32{}
		for i, k := range identifyRest(unknown, at, known) {
			got[i] = k.at.bus
		}
		equal(t, want, got, "%s", what)
	}
	four := []uint32{10, 20, 30, 40}
	f("one in the middle", []uint32{10, 0, 30, 40}, four, map[int]uint32{1: 20})
	f("the ends", []uint32{0, 20, 30, 0}, four, map[int]uint32{0: 10, 3: 40})
	f("two next to each other", []uint32{10, 0, 0, 40}, four, map[int]uint32{1: 20, 2: 30})
	f("all", []uint32{0, 0, 0, 0}, four, map[int]uint32{0: 10, 1: 20, 2: 30, 3: 40})
	f("more than there are", []uint32{0, 20, 0}, four, map[int]uint32{})
	f("none of the kernel's", []uint32{10, 0}, nil, map[int]uint32{})
	f("not in the order of addresses", []uint32{30, 0, 10, 40}, four, map[int]uint32{})
	f("nothing to find", four, four, map[int]uint32{})
}
