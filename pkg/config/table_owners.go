package config

// The switches that others need.
const (
	flagKubernetes = "kubernetes"
	flagPodLabels  = "kubernetes-enable-pod-labels"
)

// contractOwners are dcgm-exporter's flags about who uses a device.
func contractOwners(c *Config) []Flag {
	k := &c.Kubernetes
	return []Flag{
		{
			Name: flagKubernetes, Aliases: []string{"k"}, Env: "DCGM_EXPORTER_KUBERNETES", Group: GroupOwners, value: boolean(&k.Enabled),
			Usage:   "Map devices to pods, as the kubelet tells it: labels namespace, pod, container.",
			Differs: "a GPU that several pods share gets no pod labels, unless --kubernetes-virtual-gpus is set; dcgm-exporter shows the last of them",
		},
		{
			Name: flagPodLabels, Env: "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", Group: GroupOwners, value: boolean(&k.PodLabels),
			Needs: flagKubernetes, Usage: "Add the labels of the pod, which the API server tells (needs a service account that may watch pods).",
		},
		{
			Name: "kubernetes-enable-pod-uid", Env: "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", Group: GroupOwners, value: boolean(&k.PodUID),
			Needs: flagKubernetes, Usage: "Add the label pod_uid, which the API server tells, or the runtime of --container-runtime-socket.",
		},
		{
			Name: "kubernetes-gpu-id-type", Env: "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", Group: GroupOwners, value: oneOf(&k.GPUIDType, false, GPUIDUID, GPUIDDeviceName),
			Metavar: "TYPE", Usage: "What the kubelet calls a device: uid (GPU-…, MIG-…) or device-name (nvidia0, nvidia0/gi1).",
			NoEffect: "an id says by its form which device it names, so both kinds are found; another value is refused at start",
		},
		{
			Name: "kubernetes-pod-label-allowlist-regex", Env: "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", Group: GroupOwners, value: patterns{&k.LabelAllow},
			Metavar: "REGEX,…", Needs: flagPodLabels, Usage: "Pod labels to add: those whose name one of the regular expressions matches anywhere; may be repeated. None: all.",
			Differs: "an expression that is none is refused at start; a comma inside brackets of any kind separates nothing",
		},
		{
			Name: "kubernetes-virtual-gpus", Env: "KUBERNETES_VIRTUAL_GPUS", Group: GroupOwners, value: boolean(&k.VirtualGPUs),
			Needs: flagKubernetes, Usage: "Show each series of a shared GPU once per container that shares it, with the label vgpu where the device plugin numbers the shares.",
		},
		{
			Name: "kubernetes-enable-dra", Env: "KUBERNETES_ENABLE_DRA", Group: GroupOwners, value: boolean(&k.DRA),
			Needs: flagKubernetes, Usage: "Map devices of dynamic resource allocation, which the API server's ResourceSlices describe.",
		},
		{
			Name: "pod-resources-kubelet-socket", Env: "DCGM_POD_RESOURCES_KUBELET_SOCKET", Group: GroupOwners, value: text(&k.Socket),
			Metavar: "PATH", Needs: flagKubernetes, Usage: "The kubelet's pod-resources socket.",
		},
		{
			Name: "nvidia-resource-names", Env: "NVIDIA_RESOURCE_NAMES", Group: GroupOwners, value: list{&k.ResourceNames},
			Metavar: "NAME,…", Needs: flagKubernetes, Usage: "Further extended resources that are GPUs; may be repeated.",
		},
		{
			Name: "container-labels", Env: "DCGM_EXPORTER_CONTAINER_LABELS", Group: GroupOwners, value: boolean(&c.Containers.Labels),
			Usage: "Add the container that uses a device, outside Kubernetes.", NoEffect: "containers are looked up in Kubernetes only, where the kubelet names them",
		},
		{
			Name: "container-runtime-socket", Env: "DCGM_CONTAINER_RUNTIME_SOCKET", Group: GroupOwners, value: text(&c.Containers.Socket),
			Metavar: "PATH", Needs: flagKubernetes, Usage: "The container runtime's CRI socket, such as /run/containerd/containerd.sock. It names the pod and the container that a process runs in, without the API server.",
			Differs: "dcgm-exporter asks Docker's or Podman's API there, outside Kubernetes",
		},
		{
			Name: "hpc-job-mapping-dir", Env: "DCGM_HPC_JOB_MAPPING_DIR", Group: GroupOwners, value: text(&c.HPCJobDir),
			Metavar: "DIR", Usage: "Directory of files that name the jobs of each device: label hpc_job.",
		},
	}
}

// ownOwners are ours.
func ownOwners(c *Config) []Flag {
	k := &c.Kubernetes
	return []Flag{
		{
			Name: "process-values", Env: "WARPGAUGE_PROCESS_VALUES", Group: GroupOwners, value: tristate(&k.ProcessValues),
			Metavar: "auto|true|false", Needs: flagKubernetes,
			Usage: "Give the pods that share a GPU their own DCGM_FI_DEV_GPU_UTIL and DCGM_FI_DEV_FB_USED, from the processes on the GPU (needs the host's PIDs). auto: with --kubernetes-virtual-gpus.",
		},
		{
			Name: "pod-resources-interval", Env: "WARPGAUGE_POD_RESOURCES_INTERVAL", Group: GroupOwners, value: duration(&k.Interval),
			Metavar: "DURATION", Needs: flagKubernetes, Usage: "How often to ask the kubelet which container has which device. It is asked at once when devices change.",
		},
	}
}
