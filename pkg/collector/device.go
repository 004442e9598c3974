package collector

import "warpgauge/pkg/field"

// Device is one thing that has series: a GPU, an instance of one, a link, a
// switch, a CPU, a core, a network adapter. Text is raw UTF-8; escaping is done where it is rendered.
// What a level does not have stays empty.
type Device struct {
	// ID is stable and unique on the node: the UUID of a GPU,
	// "<parent>/<instance id>" of an instance, "<parent>/link<n>" of a link.
	// Owners (pods, jobs) and accumulated values are found by it.
	ID     string
	Parent string      // ID of the device this one is part of, if any
	Level  field.Level // which set of labels the series carry

	GPU      string // label gpu: the index, "0"
	UUID     string // label UUID; an instance carries its parent's
	PCIBusID string // label pci_bus_id, "00000000:3B:00.0"
	Node     string // label device, "nvidia0"
	Model    string // label modelName

	InstanceProfile string // label GPU_I_PROFILE, "1g.10gb"
	InstanceID      string // label GPU_I_ID
	ComputeID       string // label GPU_CI_ID
	// MIGUUID is the UUID of a MIG device ("MIG-…"), by which container runtimes and
	// Kubernetes know it. Not a label. A GPU instance that is split into several MIG
	// devices has none; its compute instances have theirs.
	MIGUUID string
	// Alias is a further name of a device, by which Kubernetes knows it if that is
	// nothing of the above: "amdgpu_xcp_1", the platform device of an AMD partition.
	// Not a label.
	Alias string

	Link   string // label nvlink
	Switch string // label nvswitch, "nvswitch0"
	CPU    string // label cpu
	Core   string // label cpucore

	ConnectX string // label connectx: the number of a network adapter

	// Facts are the values of the list's label fields for this device, named
	// as the field. Fields that the device does not have are left out.
	Facts []Label
}

// Label is one label of a series, unescaped.
type Label struct{ Name, Value string }

// Column says what one cell of a row is: device × field × further labels.
type Column struct {
	Device int      // index into Source.Devices
	Field  field.ID // one of the list's Readings
	// Labels distinguish several columns of one device and field (peer_gpu,
	// health_watch …). Sorted by name.
	Labels []Label
}
