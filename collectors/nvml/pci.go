//go:build linux && cgo

package nvml

import (
	"cmp"
	"fmt"
)

// pciAddress is where a board is. Its function is 0, as on every NVIDIA GPU.
type pciAddress struct{ domain, bus, device uint32 }

// String is the address as DCGM and NVML spell it.
func (a pciAddress) String() string {
	return fmt.Sprintf("%08X:%02X:%02X.0", a.domain, a.bus, a.device)
}

// parsePCI reads an address, also as the kernel spells it ("0000:3b:00.0").
func parsePCI(s string) (a pciAddress, ok bool) {
	var function uint32
	n, err := fmt.Sscanf(s, "%x:%x:%x.%x", &a.domain, &a.bus, &a.device, &function)
	return a, err == nil && n == 4 && function == 0
}

func comparePCI(a, b pciAddress) int {
	return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.bus, b.bus), cmp.Compare(a.device, b.device))
}
