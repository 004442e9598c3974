package nvmltest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// UUID returns a GPU's UUID.
func UUID(gpu int) string { return fmt.Sprintf("GPU-fa4e%04x-0000-4000-8000-%012x", gpu, gpu) }

// Serial returns a GPU's serial number.
func Serial(gpu int) string { return fmt.Sprintf("SIM%010d", gpu) }

// PCI returns a GPU's bus ID as the kernel writes it.
func PCI(gpu int) string { return fmt.Sprintf("0000:%02x:00.0", bus(gpu)) }

// bus returns a GPU's bus number. The numbers are spread as on a board with switches.
func bus(gpu int) int { return 0x0b + 7*gpu }

// identity returns the script lines that distinguish the GPUs.
func identity(gpus int) (out []string) {
	for g := range gpus {
		add := func(key, value string) { out = append(out, fmt.Sprintf("gpu %d %s %s", g, key, value)) }
		add("uuid", UUID(g))
		add("serial", Serial(g))
		add("minor", strconv.Itoa(g))
		add("pci.domain", "0")
		add("pci.bus", strconv.Itoa(bus(g)))
		add("pci.device", "0")
	}
	return out
}

// makeDevices creates the files below dev and proc.
func (n *Node) makeDevices() error {
	dev := filepath.Join(n.dir, "dev")
	if err := os.MkdirAll(dev, 0o750); err != nil {
		return err
	}
	return n.makeDriverFiles(n.driver.version)
}

func (n *Node) devices() []string {
	out := []string{"nvidiactl"}
	for g := range n.gpus {
		out = append(out, "nvidia"+strconv.Itoa(g))
	}
	return out
}

// makeDriverFiles creates the files of a loaded driver of a version.
func (n *Node) makeDriverFiles(version string) error {
	files := map[string]string{
		"proc/driver/nvidia/version": fmt.Sprintf("NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Thu Jan  1 00:00:00 UTC 2026\n", version),
	}
	for _, d := range n.devices() {
		files[filepath.Join("dev", d)] = ""
	}
	for g := range n.gpus {
		files[filepath.Join("proc/driver/nvidia/gpus", PCI(g), "information")] = n.information(g)
	}
	for name, text := range files {
		name = filepath.Join(n.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// information returns the kernel module's file about a GPU, which does not depend on NVML.
func (n *Node) information(gpu int) string {
	return fmt.Sprintf("Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t 96.00.74.00.01\nBus Type: \t PCIe\n"+
		"DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Firmware: \t %s\nGPU Excluded:\t No\n",
		n.model, 100+gpu, UUID(gpu), PCI(gpu), gpu, n.driver.version)
}

func (n *Node) removeDriverFiles() error {
	for _, d := range append(n.devices(), "../proc/driver/nvidia") {
		if err := os.RemoveAll(filepath.Join(n.dir, "dev", d)); err != nil {
			return err
		}
	}
	return nil
}
