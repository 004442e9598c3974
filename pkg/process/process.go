// Package process says which containers use each GPU, and how much of it: it
// follows the rows of the process collectors (pkg/collector/processes) and finds
// the pod, the container and the batch job of each process by its control group
// in /proc. It needs no API server and no container runtime: the control group
// of a container names it and its pod's uid.
//
// That takes the PID namespace of the machine (hostPID: true), because drivers
// number processes as the machine does, and newer NVIDIA drivers hide processes
// of other namespaces. In a namespace of our own nothing is attributed and no
// device is complete.
//
// Client.Run is one goroutine; Snapshot may be called from any and never waits.
// Only files are read that the kernel answers from memory without a lock that a
// hung process can hold (stat, cgroup; never cmdline or maps).
package process

import "time"

// Snapshot is who used each device at the last look. It is immutable.
type Snapshot struct {
	Version uint64               // grows when anything but times has changed
	Time    time.Time            // of the look; zero before the first
	Devices map[string]DeviceUse // by collector.Device.ID: a GPU, or the instance where the library tells it
}

// DeviceUse is what is known of a device. A device is missing where no library
// tells its processes, or where what it told is too old.
type DeviceUse struct {
	Time time.Time // of the sample
	// Complete says that every process that the library counts on the device is
	// listed and was placed. Only then a container that is not among the Users
	// has no process on the device.
	Complete bool
	// Occupancy says that SM is the share of compute units that waves occupy
	// (AMD), not the share of time in which kernels run.
	Occupancy bool
	Unplaced  int // processes that are listed and whose container could not be found
	// Users are sorted, one for each container, job or pod. The one with neither
	// has the processes outside of all of them.
	Users []User
}

// User is the processes of one container on one device.
type User struct {
	PodUID      string // as in the control group: of a static pod, the hash in its annotation kubernetes.io/config.hash
	ContainerID string // 64 hexadecimal digits; empty outside of containers, and where it could not be told
	Job         string // of Slurm, "1234"; empty outside of jobs
	Processes   int
	// SM and Memory are sums over the processes: percent of the device and bytes.
	// NaN where the library does not tell one of them, or where it is not known
	// that it lists all processes, so that a sum might be too small.
	SM     float64
	Memory float64
}
