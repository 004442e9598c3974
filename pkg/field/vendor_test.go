package field

import (
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

// Each identifier in a row finds the row.
func TestVendorsDiffer(t *testing.T) {
	for i, v := range Vendors() {
		for _, o := range Vendors()[:i] {
			testkit.ErrorIf(t, v.Name == o.Name || v.PCI == o.PCI || v.Module == o.Module || v.Domain == o.Domain, "%s and %s have something in common", v.Name, o.Name)
		}
		testkit.ErrorIf(t, VendorByPCI(v.PCI) != v || v.Driver != "" && VendorByDriver(v.Driver) != v, "%s is not found", v.Name)
	}
	testkit.ErrorIf(t, VendorByPCI("") != nil || VendorByDriver("") != nil, "nothing has a vendor")
}

// Among a node's resources, GPUs and their parts count.
func TestOffersGPU(t *testing.T) {
	f := func(resource string, want bool) {
		t.Helper()
		testkit.Equal(t, resource+" counts", want, OffersGPU(resource))
	}
	for _, r := range strings.Fields(`nvidia.com/gpu nvidia.com/gpu.shared nvidia.com/mig-1g.5gb nvidia.com/mig-1g.5gb.shared nvidia.com/mig-3g.20gb.me
		amd.com/gpu amd.com/spx_nps1 amd.com/cpx_nps4 amd.com/dpx_nps2 amd.com/qpx_nps1`) {
		f(r, true)
	}
	for _, r := range strings.Fields(`cpu example.com/gpu nvidia.com/rtx gpu nvidia.com/ nvidia.com/gpu-memory nvidia.com/gpux nvidia.com/pgpu nvidia.com/GA102GL_A10
		amd.com/ amd.com/cpu amd.com/cpx amd.com/cpx_nps amd.com/cpx_npsa amd.com/_nps4 amd.com/ps_nps4 amd.com/CPX_NPS4 amd.com/nic rdma/hca`) {
		f(r, false)
	}
	for driver, want := range map[string]bool{"gpu.nvidia.com": true, "gpu.amd.com": true, "compute-domain.nvidia.com": false, "": false, "dra.net": false} {
		testkit.Equal(t, "driver "+driver+" counts", want, VendorByDriver(driver) != nil)
	}
}
