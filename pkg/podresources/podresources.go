// Package podresources learns from the kubelet which pod has which devices: it
// asks the pod-resources API on the kubelet's socket, in the background, and keeps
// the last good answer.
//
// A Client holds one connection. It lists every few seconds, at once when somebody
// suspects a change, and when a restart of the kubelet has made the socket anew.
// Readers take an immutable Snapshot from an atomic pointer: they wait for nothing.
//
// Whatever goes wrong (silence, errors, no socket, nonsense), the Snapshot stays as
// it was, and package mapping says since when and why. A kubelet that has just
// started lists less than there is until it has found its pods again; what it does
// not list then is kept for a while, see Options.Settle.
package podresources

import "time"

// Snapshot is what the kubelet said last. Nobody changes it after it was
// published; readers must not either.
type Snapshot struct {
	// Version grows with each change of content. The first answer is a change,
	// whatever it says; 0 means that there was none yet.
	Version uint64
	// Time is when the content was last confirmed; zero before the first answer.
	Time time.Time
	// Pods are those that have devices or claims that count, by namespace and name.
	Pods []Pod
	// Allocatable are the devices that the kubelet could hand out, by resource;
	// nil where it does not tell.
	Allocatable []Devices
}

// Pod is a pod that has devices. Its UID is not known to this API.
type Pod struct {
	Namespace, Name string
	Containers      []Container // those with devices or claims that count, by name
}

// Container is a container, or a native side-car, that has devices.
type Container struct {
	Name    string
	Devices []Devices // by resource, one for each
	Claims  []Claim   // by namespace, name, driver, pool, device and share
}

// Devices are devices of one resource.
type Devices struct {
	Resource string   // such as nvidia.com/gpu
	IDs      []string // as the device plugin calls them; sorted, unique
}

// Claim is one device of a resource claim (dynamic resource allocation).
type Claim struct {
	Namespace, Name string // of the claim
	// Driver, Pool and Device name the device, as in a ResourceSlice.
	Driver, Pool, Device string
	// ShareID tells apart the consumers of a device with consumable capacity;
	// empty where there is none.
	ShareID string
	// CDI are names of CDI devices; sorted, unique. Kubelets up to 1.36 at least
	// repeat those of a claim's earlier devices at its later ones, so they say
	// nothing certain about this device.
	CDI []string
}
