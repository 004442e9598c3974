package podmeta

import "time"

// Snapshot is what the API server said last. It is immutable.
type Snapshot struct {
	// Version grows when the content changes, and only then. The first answer of each
	// list is a change, whatever it says; 0: there was none yet.
	Version uint64
	// Time is when the content was last confirmed; of two lists, the older one. Zero: a
	// list that was asked for has never come. A list is confirmed when it is read and
	// by each event of the watch that follows, bookmarks included, about once a minute.
	Time time.Time
	// PodsTime and SlicesTime are when each list was last confirmed. Zero: never.
	PodsTime, SlicesTime time.Time
	// Pods are all pods of this node that the API still has, ended ones included.
	Pods map[PodName]Pod
	// ByUID finds a pod by each uid that it goes by: the API's, and for a static pod
	// also the one that the kubelet gave it, which is in the names of its cgroups.
	ByUID map[string]PodName
	// Slices are the devices of this node's ResourceSlices.
	Slices map[DeviceName]Device
}

// PodName is the key of a pod.
type PodName struct{ Namespace, Name string }

// Pod is what is kept of a pod.
type Pod struct {
	UID    string            // the API's
	Labels map[string]string // as the API has them, only those that Options.KeepLabel lets through; may be nil
}

// DeviceName is what an allocated claim calls a device.
type DeviceName struct{ Driver, Pool, Device string }

// Device is what a ResourceSlice says of a device. An empty text is unknown.
type Device struct {
	// Type is gpu, mig, vfio or partition, else what the driver calls it.
	Type string
	// UUID is that of the GPU or MIG device. AMD's driver tells none. NVIDIA's tells none
	// for a MIG device that is made only when a claim is prepared ("dynamic MIG"): there
	// ParentUUID with the Attributes profileID and placementStart says which GPU
	// instance it is, in terms of nvmlGpuInstanceInfo_t, once it exists.
	UUID string
	// ParentUUID is that of the GPU which a MIG device is part of.
	ParentUUID string
	// Profile of a MIG device ("1g.12gb"), or of an AMD GPU or partition ("cpx_nps4").
	Profile string
	// PCIBusID is the GPU's address, for a MIG device or partition that of the GPU it is
	// part of: as in sysfs, lower case and with at least four digits of domain ("0000:d8:00.0").
	PCIBusID string
	// Index is NVML's, where NVIDIA's driver tells it (before 25.8.1); −1: unknown.
	Index int
	// Withdrawn says that no slice names the device any more, and this is what one said
	// last. It may well be in use: the kubelet deletes all slices of a node when it starts,
	// and drivers leave out devices that are not healthy, while claims go on naming them.
	Withdrawn bool
	// Attributes are further ones that identify a device; nil: none. NVIDIA: minor for a
	// GPU; parentMinor, profileID and placementStart for a MIG device. AMD: cardIndex and
	// renderIndex (DRM) for what exists, gpuIndex (by PCI address) where partitions are
	// made when a claim is prepared; isVF for a passed-through device.
	Attributes map[string]string
}
