// Package owner knows who uses which device: pods and their containers, resource
// claims, batch jobs. It joins what the clients of the mappings answered last
// (podresources, podmeta, cri, hpc, process) with the devices on the board into an
// immutable table, which exposition asks for labels.
//
// A Keeper never waits for any of them: it reads their newest Snapshots, which are
// in memory. Run rebuilds the table when one of them has changed; a View that has
// come meanwhile is joined by whoever asks first, so that no page shows devices
// without the owners that they had before. The version of the table grows only if an
// answer differs. Whatever a client lost, its last Snapshot stays, and so do labels.
//
// # Whose is a shared device
//
// A device with one container has its labels. One that several containers of a
// pod share has those of the pod, without container. One that several pods share
// has none: it belongs to none of them. With Options.Virtual each of the device's
// series is instead copied for every container that shares it, with vgpu where the
// id numbers the shares; what the copies show is the whole device.
//
// A GPU that is divided says nothing of the pods on its instances, a GPU instance
// nothing of those on its compute instances. A compute instance and a link without
// owners of their own have those of what they are part of. A whole GPU that is given
// to somebody says nothing of its instances.
//
// Labels that differ between several claims of a container to one device are left
// out. Jobs come on top: a copy of each series per job, named by the GPU's index, or
// by index and instance for an instance; neither is valid for the other. Where a
// machine has GPUs of two vendors, each counts its own from 0, and a file is valid for
// every GPU of its index.
//
// # Values of users
//
// With Options.Processes, what several users share in truth (with Virtual several
// containers, else several pods) shows two readings per user: DCGM_FI_DEV_GPU_UTIL
// and DCGM_FI_DEV_FB_USED, under every name that the list gives them, except as
// histograms. The device's own series stays as it is, without owners, and each
// user's series has pod_uid, so that the two are told apart and no sum counts
// twice. They come from the processes on the device whose pod the kubelet has given
// the device to. What processes of others use is in the device's series only.
//
// A pod whose UID is not known has no such series, and neither has a process whose
// pod is not known: what is absent is unknown. A pod without a process has 0 only if
// all processes on the device are known. Containers are told apart where the runtime
// names them; else a pod with several containers on the device has one series,
// without container. Where some value of a user's processes is not known, the sum is
// not either. What a library tells of processes in place of time (AMD: the share of
// compute units that they occupy) stands for their utilisation.
package owner
