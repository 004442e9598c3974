//go:build linux && cgo

package nvml

import (
	"fmt"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/tree"

	"github.com/google/go-cmp/cmp"
)

func TestParsePCI(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("parsePCI(%q)", in), want, parsePCI(in))
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
		{busID(0, 0x07, 0), "GPU-a", model, "0"},
		{busID(0, 0x3b, 0), "GPU-b", model, "1"},
		{busID(0, 0xaf, 0), "", model, "3"},
		{busID(1, 0x01, 0), "", "", ""},
	}
	testkit.Equal(t, "", want, kernelGPUs(root), cmp.AllowUnexported(kernelGPU{}))
	bare := tree.Write(t, map[string]string{"sys/bus/pci/drivers/nvidia/0000:3b:00.0/x": "", "sys/bus/pci/drivers/nvidia/0000:3b:00.1/x": ""})
	got := kernelGPUs(bare)
	testkit.ErrorIf(t, len(got) != 1 || got[0].at != busID(0, 0x3b, 0), "without the driver's files: %v", got)
	got = kernelGPUs(t.TempDir())
	testkit.ErrorIf(t, got != nil, "without a driver: %v", got)
}

// TestFillIn checks which GPUs get the kernel's address for their place. "" is a GPU that NVML has not answered for.
func TestFillIn(t *testing.T) {
	root := tree.Write(t, map[string]string{
		"proc/driver/nvidia/gpus/0000:0a:00.0/x": "", "proc/driver/nvidia/gpus/0000:14:00.0/x": "", "proc/driver/nvidia/gpus/0000:1e:00.0/x": "",
	})
	f := func(what string, from, want []string) {
		t.Helper()
		var found []*gpu
		for i, id := range from {
			g := newGPU(i)
			if g.device.PCIBusID = id; id == "" {
				g.err = errHangs
			}
			found = append(found, g)
		}
		(&discovery{o: Options{Root: root}}).fillIn(found)
		var got []string
		for _, g := range found {
			got = append(got, g.device.PCIBusID)
		}
		equal(t, want, got, "%s", what)
	}
	a, b, c := busID(0, 10, 0), busID(0, 20, 0), busID(0, 30, 0)
	f("one in the middle", []string{a, "", c}, []string{a, b, c})
	f("all", []string{"", "", ""}, []string{a, b, c})
	f("fewer than there are", []string{"", b}, []string{"", b})
	f("more than there are", []string{"", "", "", ""}, []string{"", "", "", ""})
	f("not in the order of addresses", []string{c, "", a}, []string{c, "", a})
}
