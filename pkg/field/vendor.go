package field

import (
	"path"
	"slices"
)

// Vendor is a row of the table of vendors: the names that the kernel, the PCI bus and Kubernetes use for one
// maker's GPUs, and the readings that only its GPUs have. Code that must tell vendors apart reads the row. An
// empty field means that the vendor has no such thing. Rows are read-only.
type Vendor struct {
	Name   string         // the maker's own spelling: "NVIDIA"
	Fields [][]Descriptor // readings that only its devices have; Descriptor.Vendor of each is this row

	// The system.
	PCI       string   // vendor id in sysfs: "0x10de"
	Module    string   // kernel module; also the name of its driver on the bus
	Nodes     []string // patterns of device nodes; of a GPU's: a prefix and * for a number
	Control   []string // patterns of device nodes that every GPU needs
	About     string   // folder of procfs with a file "information" for each PCI address
	Switches  bool     // its switches between GPUs are bridges on the PCI bus
	Visible   string   // environment variable that lists a container's GPUs
	Libraries []string // names of shared libraries, without version

	// Diagnosis of the system. Advice tells a user what to do.
	Rival         string // kernel module that binds the GPUs but has no metrics
	Release       string // file with the version of the vendor's software
	Daemon        string // socket of the daemon that keeps GPUs initialised; its folder has the daemon's name
	Probe         string // device node that can be opened without side effects
	NodeAdvice    string // without device nodes
	NodesOptional string // advice if only some values need the device nodes
	LibraryAdvice string // without the first library, which must have the module's version; "": the library may differ

	// Kubernetes. Domain is the domain of the extended resources, "nvidia.com". Resources are
	// patterns, see path.Match, of their names in it.
	Domain    string
	Resources []string

	// Driver is the driver of dynamic resource allocation. SliceGPU, SliceMIG and
	// SlicePartition are values of the attribute type in its ResourceSlices.
	Driver, SliceGPU, SliceMIG, SlicePartition string

	// Forms of the device plugin's ids.
	UUID      string   // prefix of the UUID of a GPU
	MIG       string   // prefix of the UUID of a MIG device
	Node      string   // prefix of the name of a GPU's device node, followed by a number
	Partition string   // prefix of a partition's platform device, followed by a number
	All       []string // ids that stand for all GPUs
	// FirstPartition means that the plugin names the first partition of a divided GPU by the GPU's PCI address.
	FirstPartition bool
}

// The rows of vendors. A new vendor adds one row.
var (
	VendorNVIDIA = &Vendor{
		Name: "NVIDIA", Fields: [][]Descriptor{nvidiaFields[:]},
		PCI: "0x10de", Module: "nvidia", About: "driver/nvidia/gpus", Switches: true, Visible: "NVIDIA_VISIBLE_DEVICES",
		Nodes: []string{"/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dxg"}, Control: []string{"/dev/nvidiactl"},
		Libraries: []string{"libnvidia-ml", "libdcgm"}, Rival: "nouveau", Daemon: "/run/nvidia-persistenced/socket", Probe: "/dev/nvidiactl",
		NodeAdvice:    "run nvidia-smi once as root, or nvidia-modprobe -c 0 -u, which make the device nodes; nvidia-persistenced does so at boot. Give a container the GPUs: in Kubernetes runtimeClassName: nvidia with NVIDIA_VISIBLE_DEVICES=all, or privileged with /dev mounted; docker run --gpus all; podman run --device nvidia.com/gpu=all",
		LibraryAdvice: "install the driver's libraries (libnvidia-ml, part of every driver package); in a container set NVIDIA_DRIVER_CAPABILITIES=utility,compute; elsewhere name the place with --nvml-library or --nvml-driver-root",
		// Names of the device plugin, also GKE's.
		Domain: "nvidia.com", Resources: []string{"gpu", "gpu.shared", "mig-*"},
		Driver: "gpu.nvidia.com", SliceGPU: "gpu", SliceMIG: "mig",
		UUID: "GPU-", MIG: "MIG-", Node: "nvidia",
		All: []string{"all", "tegra"}, // on WSL and Tegra, where one device stands for all GPUs
	}
	// With the naming strategy "mixed" the plugin has a resource for each kind of partition: spx_nps1, cpx_nps4.
	VendorAMD = &Vendor{
		Name: "AMD", Fields: [][]Descriptor{amdFields[:], amdSMIFields[:]},
		PCI: "0x1002", Module: "amdgpu",
		Nodes: []string{"/dev/kfd", "/dev/dri/renderD*"}, Control: []string{"/dev/kfd"}, Release: "/opt/rocm/.info/version",
		NodesOptional: "nothing for metrics from /sys; --rocm-source=smi needs the groups render and video",
		Libraries:     []string{"librocm_smi64", "libamd_smi"},
		Domain:        "amd.com", Resources: []string{"gpu", "[a-z]px_nps[0-9]"},
		Driver: "gpu.amd.com", SliceGPU: "amdgpu", SlicePartition: "amdgpu-partition",
		Partition: "amdgpu_xcp_", FirstPartition: true,
	}
	vendors = []*Vendor{VendorNVIDIA, VendorAMD}
)

// Vendors returns the rows of all vendors.
func Vendors() []*Vendor { return slices.Clone(vendors) }

// VendorByPCI returns the row with a PCI vendor id in sysfs' form, or nil.
func VendorByPCI(id string) *Vendor {
	return vendor(func(v *Vendor) bool { return v.PCI == id && id != "" })
}

// VendorByDriver returns the row with that DRA driver, or nil.
func VendorByDriver(name string) *Vendor {
	return vendor(func(v *Vendor) bool { return v.Driver == name && name != "" })
}

func vendor(is func(*Vendor) bool) *Vendor {
	if i := slices.IndexFunc(vendors, is); i >= 0 {
		return vendors[i]
	}
	return nil
}

// Owns reports whether an extended resource is in the vendor's domain.
func (v *Vendor) Owns(resource string) bool { return v.Domain != "" && path.Dir(resource) == v.Domain }

// OffersGPU reports whether an extended resource is any vendor's GPU or a part of one.
func OffersGPU(resource string) bool {
	return slices.ContainsFunc(vendors, func(v *Vendor) bool {
		return v.Owns(resource) && slices.ContainsFunc(v.Resources, func(pattern string) bool {
			match, err := path.Match(pattern, path.Base(resource))
			return match && err == nil
		})
	})
}
