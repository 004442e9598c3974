package raw

// GPU is one PCI device of the amdgpu driver, as /sys shows it. What is not
// known is empty.
type GPU struct {
	PCI    string // "0000:41:00.0"
	Card   string // "card1"
	Render string // "renderD128"
	Path   string // resolved directory of the PCI device

	UniqueID uint64 // 0: the board has none
	Serial   string // of the package: two dies of one share it
	Model    string // market name, or what comes closest
	VBIOS    string
	DeviceID uint16 // PCI
	Hive     uint64 // XGMI hive, 0: none
	APU      bool   // its memory is the host's

	Compute string // current_compute_partition: "SPX", "DPX", "TPX", "QPX", "CPX"; "" where boards have none
	Memory  string // current_memory_partition: "NPS1" …
	// Instances are the devices of the compute side in the order of partitions:
	// one where the board is whole, none without KFD.
	Instances []Instance
}

// Instance is one device of the compute side: a KFD node.
type Instance struct {
	ID     int    // partition, from 0; index of Reading.Index
	Node   int    // kfd/topology/nodes/<Node>
	KFD    uint64 // gpu_id
	Render string
	Name   string // platform device of a partition, "amdgpu_xcp_1"; empty for the first, which is the PCI device
	XCCs   int    // chiplets with compute units, 0: not known
	Units  int    // compute units
}

// Node is what all GPUs of the node share.
type Node struct {
	Driver string // version of amdgpu: its own, else the kernel's release
}
