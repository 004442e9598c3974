package kube

import (
	"path"
	"slices"
)

// Vendor holds the names that Kubernetes components give to the devices of one vendor:
// the resources and ids of its device plugin, and its DRA driver. It consists of plain
// values, so a row of a vendor table can hold one. An empty field means that the
// vendor has no such thing.
type Vendor struct {
	Name string

	// Domain is the domain of the extended resources, "nvidia.com". Resources are patterns,
	// see path.Match, of their names in it.
	Domain    string
	Resources []string

	// Driver is the driver of dynamic resource allocation. SliceGPU, SliceMIG and
	// SlicePartition are values of the attribute type in its ResourceSlices.
	Driver, SliceGPU, SliceMIG, SlicePartition string

	// Forms of the device plugin's ids.
	UUID      string   // prefix of the UUID of a GPU
	MIG       string   // prefix of the UUID of a MIG device
	Node      string   // prefix of a device file's name, followed by the number of a GPU
	Partition string   // prefix of a partition's platform device, followed by a number
	All       []string // ids that stand for all GPUs
	// FirstPartition means that the plugin names the first partition of a divided GPU
	// by the GPU's PCI address.
	FirstPartition bool
}

// NVIDIA returns the names of NVIDIA's device plugin (also GKE's) and DRA driver.
func NVIDIA() Vendor {
	return Vendor{
		Name:   "NVIDIA",
		Domain: "nvidia.com", Resources: []string{"gpu", "gpu.shared", "mig-*"},
		Driver: "gpu.nvidia.com", SliceGPU: "gpu", SliceMIG: "mig",
		UUID: "GPU-", MIG: "MIG-", Node: "nvidia",
		All: []string{"all", "tegra"}, // on WSL, where one device is all GPUs; on Tegra, likewise
	}
}

// AMD returns the names of AMD's device plugin and DRA driver. With the naming strategy
// "mixed" the plugin has a resource for each kind of partition: spx_nps1, cpx_nps4.
func AMD() Vendor {
	return Vendor{
		Name:   "AMD",
		Domain: "amd.com", Resources: []string{"gpu", "[a-z]px_nps[0-9]"},
		Driver: "gpu.amd.com", SliceGPU: "amdgpu", SlicePartition: "amdgpu-partition",
		Partition: "amdgpu_xcp_", FirstPartition: true,
	}
}

// Owns reports whether a resource is in the vendor's domain.
func (v *Vendor) Owns(resource string) bool { return path.Dir(resource) == v.Domain }

// Has reports whether an extended resource is one of the vendor's GPUs, or a part of one.
func (v *Vendor) Has(resource string) bool {
	return v.Owns(resource) && slices.ContainsFunc(v.Resources, func(pattern string) bool {
		match, err := path.Match(pattern, path.Base(resource))
		return match && err == nil
	})
}

// Vendors are the rows of a vendor table.
type Vendors []Vendor

// Keep returns which extended resources count: those of the vendors, and further ones.
func (vs Vendors) Keep(further []string) func(resource string) bool {
	return func(resource string) bool {
		return slices.ContainsFunc(vs, func(v Vendor) bool { return v.Has(resource) }) || slices.Contains(further, resource)
	}
}

// Driver returns the vendor with that DRA driver; nil if there is none.
func (vs Vendors) Driver(name string) *Vendor {
	if i := slices.IndexFunc(vs, func(v Vendor) bool { return v.Driver == name }); i >= 0 && name != "" {
		return &vs[i]
	}
	return nil
}
