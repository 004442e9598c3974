package owner

import (
	"cmp"
	"strings"
	"testing"
)

// Ids of the cases, shortened there: a pod's uid in three spellings, containers.
const (
	uidA  = "7d4424e6-bb13-42f4-a47a-45a4828bf54d"
	uidAs = "7d4424e6_bb13_42f4_a47a_45a4828bf54d"
	uidB  = "1e597579-417e-482f-bf65-5fe170c3aebd"
	uidBs = "1e597579_417e_482f_bf65_5fe170c3aebd"
	hash  = "8daa50c3a64c9ff60bb9eab7b44b56fd"
	ctrA  = "d0b3604b67ac7930dd34ba3a796627e3e4717d12309e90a4afe3f38b6816ac98"
	ctrB  = "a09bc17f5aa29b0dbdec9ede5f46cf1396d2405917ab02e6f1eb1019f388396e"
	node  = "88ea268ece65a02d68b169fd74bcbcb427eb7f28900db0e3b906fb2eeb7341df" // a container that is a node
)

// expand writes the ids out, so that the paths can be read.
var expand = strings.NewReplacer(
	"<UID_A>", uidAs, "<UID-A>", uidA, "<UID_B>", uidBs, "<UID-B>", uidB, "<HASH>", hash,
	"<CTR-A>", ctrA, "<CTR-B>", ctrB, "<NODE>", node)

// trees are control groups as they were seen, or as the source names them.
var trees = []struct {
	name string
	seen string // where
	file string // of a process
	own  string // ours; "" that of a service
	want location
}{{
	name: "systemd, containerd, v2, burstable",
	seen: "https://github.com/cryptnono/cryptnono/issues/47 (k3s, colima)",
	file: "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "systemd, containerd, v2, guaranteed",
	seen: "https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/cm/cgroup_manager_linux.go: guaranteed pods have no class",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "systemd, cri-o, v2, crun",
	seen: "https://github.com/sustainable-computing-io/kepler/pull/2359 (OpenShift); crun adds /container",
	file: "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<UID_A>.slice/crio-<CTR-A>.scope/container",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "systemd, cri-o, v1",
	seen: "https://github.com/opencontainers/runc/issues/4620",
	file: "13:freezer:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/crio-<CTR-A>.scope\n" +
		"11:files:/\n" +
		"10:hugetlb:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/crio-<CTR-A>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "cri-o's conmon in its pod",
	seen: "https://github.com/openshift/microshift/pull/697",
	file: "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<UID_A>.slice/crio-conmon-<CTR-A>.scope",
	want: location{pod: uidA},
}, {
	name: "cri-o's conmon outside of its pod",
	seen: "https://github.com/openshift/microshift/pull/697",
	file: "0::/system.slice/crio-conmon-<CTR-A>.scope",
	want: location{},
}, {
	name: "cgroupfs, cri-o",
	seen: "https://github.com/cri-o/cri-o/pull/812: crio-<id>",
	file: "0::/kubepods/besteffort/pod<UID-A>/crio-<CTR-A>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "cgroupfs, cri-o's conmon",
	seen: "https://github.com/cri-o/cri-o/blob/main/internal/config/cgmgr/cgroupfs_linux.go: <parent>/crio-conmon-<id>",
	file: "0::/kubepods/besteffort/pod<UID-A>/crio-conmon-<CTR-A>",
	want: location{pod: uidA},
}, {
	name: "cgroupfs, containerd, v1",
	seen: "https://github.com/sustainable-computing-io/kepler/issues/907 (EKS)",
	file: "12:cpuset:/kubepods/burstable/pod<UID-A>/<CTR-A>\n" +
		"5:misc:/kubepods/burstable/pod<UID-A>/<CTR-A>\n" +
		"1:name=systemd:/kubepods/burstable/pod<UID-A>/<CTR-A>\n" +
		"0::/",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "cgroupfs, guaranteed",
	seen: "https://github.com/CJLove/rt-operator/blob/main/notes/cgroupv1_notes.md (k3s)",
	file: "3:cpu,cpuacct:/kubepods/pod<UID-A>/<CTR-A>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "Docker below a kubelet, systemd, v1",
	seen: "https://github.com/lxc/lxc/issues/3890",
	file: "12:rdma:/\n" +
		"11:freezer:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/docker-<CTR-A>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "slices for a containerd without systemd, hybrid",
	seen: "https://github.com/open-telemetry/opentelemetry-java/issues/4507",
	file: "11:perf_event:/kubepods-besteffort-pod<UID_A>.slice:cri-containerd:<CTR-A>\n" +
		"10:blkio:/system.slice/containerd.service/kubepods-besteffort-pod<UID_A>.slice:cri-containerd:<CTR-A>\n" +
		"0::/system.slice/containerd.service",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "the same at the root",
	seen: "containerd 1.6.20 without SystemdCgroup, cgroup_parent of slices",
	file: "9:name=systemd:/kubepods-burstable-pod<HASH>.slice:cri-containerd:<CTR-A>",
	want: location{pod: hash, container: ctrA},
}, {
	name: "the same of cri-o's monitor",
	seen: "https://github.com/cri-o/cri-o/pull/812: slice, prefix and id are joined by colons",
	file: "0::/system.slice/kubepods-besteffort-pod<UID_A>.slice:crio-conmon:<CTR-A>",
	want: location{pod: uidA},
}, {
	name: "user namespace, containerd",
	seen: "https://github.com/kubernetes/kubernetes/issues/130982",
	file: "0::/system.slice/kubepods-besteffort-pod<UID_A>.slice:cri-containerd:<CTR-A>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "static pod, systemd",
	seen: "https://github.com/netdata/netdata/issues/4868",
	file: "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<HASH>.slice/cri-containerd-<CTR-A>.scope",
	want: location{pod: hash, container: ctrA},
}, {
	name: "static pod, cgroupfs",
	seen: "https://github.com/netdata/netdata/issues/3369",
	file: "4:memory:/kubepods/burstable/pod<HASH>/<CTR-A>",
	want: location{pod: hash, container: ctrA},
}, {
	name: "kind, systemd, from inside of the node",
	seen: "https://github.com/containerd/nri/pull/227, https://github.com/kubernetes-sigs/kind/issues/3947",
	file: "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
	want: location{pod: uidB, container: ctrB},
}, {
	name: "kind, systemd, from the machine: the container that is the node",
	seen: "the same, below that container",
	file: "0::/system.slice/docker-<NODE>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
	want: location{container: node},
}, {
	name: "kind, systemd, from a pod of that node",
	seen: "the same",
	file: "0::/system.slice/docker-<NODE>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
	own:  "0::/system.slice/docker-<NODE>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope",
	want: location{pod: uidB, container: ctrB},
}, {
	name: "kind, systemd, from a pod of that node: a service of the node",
	seen: "the same",
	file: "0::/system.slice/docker-<NODE>.scope/system.slice/containerd.service",
	own:  "0::/system.slice/docker-<NODE>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope",
	want: location{container: node},
}, {
	name: "kind, cgroupfs, v1, from a pod of that node",
	seen: "https://github.com/DataDog/datadog-agent/blob/main/pkg/util/cgroups/pid_mapper_test.go",
	file: "14:name=systemd:/docker/<NODE>/kubelet/kubepods/burstable/pod<UID-B>/<CTR-B>\n" +
		"13:rdma:/\n" +
		"0::/docker/<NODE>/system.slice/containerd.service",
	own: "14:name=systemd:/docker/<NODE>/kubelet/kubepods/pod<UID-A>/<CTR-A>\n" +
		"13:rdma:/\n" +
		"0::/docker/<NODE>/system.slice/containerd.service",
	want: location{pod: uidB, container: ctrB},
}, {
	name: "kind, cgroupfs, v1, from the machine",
	seen: "the same",
	file: "14:name=systemd:/docker/<NODE>/kubelet/kubepods/burstable/pod<UID-B>/<CTR-B>\n" +
		"13:rdma:/\n" +
		"0::/docker/<NODE>/system.slice/containerd.service",
	want: location{container: node},
}, {
	name: "minikube, cri-o, systemd, from a pod of that node",
	seen: "https://github.com/kubernetes/minikube/issues/11280",
	file: "1:name=systemd:/docker/<NODE>/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<UID_A>.slice/crio-<CTR-A>.scope",
	own:  "1:name=systemd:/docker/<NODE>/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<UID_B>.slice/crio-<CTR-B>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "a node in a pod: the pod that the kubelet of this machine knows",
	seen: "https://github.com/kubernetes/test-infra/pull/37440 (nodes in containers of a Docker in a pod)",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/dind/<NODE>/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "a node in a pod, from a pod of that node",
	seen: "the same",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
	own:  "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<HASH>.slice/cri-containerd-<NODE>.scope",
	want: location{pod: uidB, container: ctrB},
}, {
	name: "a node in a pod, from a pod of that node: a group that was made in a pod there",
	seen: "the same",
	file: "0::/kubepods/pod<UID-A>/<CTR-A>/kubepods/pod<UID-B>/<CTR-B>/kubepods/pod<HASH>/<NODE>",
	own:  "0::/kubepods/pod<UID-A>/<CTR-A>/kubepods/pod<HASH>/<NODE>",
	want: location{pod: uidB, container: ctrB},
}, {
	name: "a node in a pod, from a pod of that node: a pod next to the node",
	seen: "the same",
	file: "0::/kubepods/pod<UID-B>/<CTR-B>/kubepods/pod<UID-A>/<CTR-A>",
	own:  "0::/kubepods/pod<UID-A>/<CTR-A>/kubepods/pod<HASH>/<NODE>",
	want: location{pod: uidB, container: ctrB},
}, {
	name: "another container of our own pod, and what was made in it",
	seen: "cgroups(7)",
	file: "0::/kubepods/pod<UID-A>/<CTR-A>/kubepods/pod<UID-B>/<CTR-B>",
	own:  "0::/kubepods/pod<UID-A>/<NODE>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "a group with the name of another pod, made in a container (audit S4)",
	seen: "cgroups(7): a container that may write its own groups chooses their names",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "forged in a container, cgroupfs, v1, in one hierarchy",
	seen: "cgroups(7)",
	file: "9:memory:/kubepods/besteffort/pod<UID-A>/<CTR-A>\n" +
		"1:name=systemd:/kubepods/besteffort/pod<UID-A>/<CTR-A>/kubepods/pod<UID-B>/<CTR-B>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "forged in a container of cri-o",
	seen: "cgroups(7)",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/crio-<CTR-A>.scope/container/kubepods-pod<UID_B>.slice:cri-containerd:<CTR-B>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "forged in a container of cri-dockerd",
	seen: "cgroups(7)",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/docker-<CTR-A>.scope/docker-<CTR-B>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "forged in a container of Docker",
	seen: "cgroups(7)",
	file: "0::/system.slice/docker-<CTR-A>.scope/kubepods.slice/kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
	want: location{container: ctrA},
}, {
	name: "forged by a user whose service manager has its own groups",
	seen: "https://systemd.io/CGROUP_DELEGATION/",
	file: "0::/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
	want: location{},
}, {
	name: "forged by a user, v1, from a cgroup namespace of our own",
	seen: "https://systemd.io/CGROUP_DELEGATION/",
	file: "1:name=systemd:/../../../user.slice/user-1000.slice/user@1000.service/pod<UID-B>/<CTR-B>",
	want: location{},
}, {
	name: "a group that is named as a pod's, from a cgroup namespace of our own",
	seen: "",
	file: "0::/../../system.slice/batch.service/pod<UID-B>/<CTR-B>",
	want: location{container: ctrB},
}, {
	name: "a kubelet of our own user",
	seen: "https://docs.k3s.io/advanced#running-rootless-servers-experimental",
	file: "0::/user.slice/user-1000.slice/user@1000.service/app.slice/k3s-rootless.service/kubepods/burstable/pod<UID-A>/<CTR-A>",
	own:  "0::/user.slice/user-1000.slice/user@1000.service/app.slice/k3s-rootless.service/kubepods/pod<UID-B>/<CTR-B>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "Docker in a pod: the pod's container",
	seen: "https://github.com/kubernetes/test-infra/pull/37440",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/docker/<CTR-B>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "systemd in a container",
	seen: "systemd makes its slices below its own group: https://systemd.io/CONTAINER_INTERFACE/",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/system.slice/train.service",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "cgroup namespace of our own, another class",
	seen: "https://github.com/gravitational/teleport, lib/tbot/workloadidentity/workloadattest/container (k3s 1.28.6); cgroup_namespaces(7)",
	file: "0::/../../../kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "cgroup namespace of our own, cgroupfs: kubepods is not in sight",
	seen: "the same (OrbStack 1.6.4)",
	file: "0::/../../pod<UID-A>/<CTR-A>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "cgroup namespace of our own, a container of our own pod",
	seen: "cgroup_namespaces(7)",
	file: "0::/../cri-containerd-<CTR-A>.scope",
	want: location{container: ctrA},
}, {
	name: "cgroup namespace of our own, in some of the hierarchies of a hybrid machine",
	seen: "containerd 1.6.20 and runc 1.1.5 on Debian 12, from a process in a group of a besteffort pod with unshare --cgroup",
	file: "9:name=systemd:/../../../burstable/pod<UID-A>/<CTR-A>\n" +
		"7:blkio:/kubepods/burstable/pod<UID-A>/<CTR-A>\n" +
		"0::/../../../burstable/pod<UID-A>/<CTR-A>",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "kubelet with another root",
	seen: "https://github.com/kubernetes/kubernetes/issues/49281 (--cgroup-root=/container.slice)",
	file: "0::/container.slice/container-kubepods.slice/container-kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "kubelet without groups of pods",
	seen: "containerd 1.6.20 with cgroup_parent \"/\", as the kubelet has it with cgroupsPerQOS: false",
	file: "9:memory:/<CTR-A>\n0::/",
	want: location{container: ctrA},
}, {
	name: "Bottlerocket: the runtime itself",
	seen: "https://github.com/bottlerocket-os/bottlerocket/pull/3804",
	file: "0::/runtime.slice/containerd.service",
	want: location{},
}, {
	name: "Docker, cgroupfs",
	seen: "https://docs.docker.com/engine/containers/runmetrics/: /docker/<id>",
	file: "5:devices:/docker/<CTR-A>\n1:name=systemd:/docker/<CTR-A>",
	want: location{container: ctrA},
}, {
	name: "Docker, systemd",
	seen: "https://docs.docker.com/engine/containers/runmetrics/: system.slice/docker-<id>.scope",
	file: "0::/system.slice/docker-<CTR-A>.scope",
	want: location{container: ctrA},
}, {
	name: "Docker in Docker: the one that the machine's Docker knows",
	seen: "as above, nested",
	file: "0::/system.slice/docker-<CTR-A>.scope/docker/<CTR-B>",
	want: location{container: ctrA},
}, {
	name: "Podman, rootless: a container of ours",
	seen: "https://github.com/podman-container-tools/podman/issues/20423",
	file: "0::/user.slice/user-0.slice/user@0.service/machine.slice/libpod-<CTR-A>.scope/container",
	own:  "0::/user.slice/user-0.slice/session-1.scope",
	want: location{container: ctrA},
}, {
	name: "Podman, rootless: a container of another user, who could give it any name",
	seen: "the same",
	file: "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-<CTR-A>.scope/container",
	want: location{},
}, {
	name: "Podman, one of its pods, systemd",
	seen: "https://github.com/gravitational/teleport, lib/tbot/workloadidentity/workloadattest/container (Podman 4.3.1)",
	file: "0::/machine.slice/machine-libpod_pod_<NODE>.slice/libpod-<CTR-A>.scope/container",
	want: location{container: ctrA},
}, {
	name: "Podman, one of its pods, cgroupfs",
	seen: "https://github.com/containers/podman/blob/main/libpod/pod_internal.go: libpod_parent/<pod>",
	file: "0::/libpod_parent/<NODE>/libpod-<CTR-A>",
	want: location{container: ctrA},
}, {
	name: "Podman's conmon",
	seen: "https://github.com/falcosecurity/libs/pull/1613",
	file: "0::/machine.slice/libpod-conmon-<CTR-A>.scope",
	want: location{},
}, {
	name: "Slurm, v2",
	seen: "https://slurm.schedmd.com/cgroup_v2.html",
	file: "0::/system.slice/slurmstepd.scope/job_1392969/step_0/user/task_0",
	want: location{job: "1392969"},
}, {
	name: "Slurm, v2, several slurmd on the machine",
	seen: "https://github.com/rackslab/FireHPC/issues/6",
	file: "0::/system.slice/cn1_slurmstepd.scope/job_42/step_batch/user/task_special",
	want: location{job: "42"},
}, {
	name: "Slurm, v1",
	seen: "https://github.com/SchedMD/slurm/pull/8",
	file: "12:pids:/system.slice/slurmd.service\n10:devices:/slurm/uid_2101171/job_280678/step_interactive/task_0\n1:name=systemd:/system.slice/slurmd.service",
	want: location{job: "280678"},
}, {
	name: "Slurm, v1, proctrack/cgroup and task/cgroup that constrains devices",
	seen: "Slurm 22.05 on Debian 12, hybrid, a batch job",
	file: "9:name=systemd:/\n6:freezer:/slurm_vm/uid_0/job_1/step_batch\n5:devices:/slurm_vm/uid_0/job_1/step_batch/task_0\n0::/",
	want: location{job: "1"},
}, {
	name: "Slurm, v1, several slurmd on the machine",
	seen: "https://github.com/plazonic/cgroup_exporter/pull/5",
	file: "7:freezer:/slurm_node1/uid_1000/job_7/step_0/task_0",
	want: location{job: "7"},
}, {
	name: "Slurm, v2, seen from a container",
	seen: "cgroup_namespaces(7)",
	file: "0::/../../system.slice/slurmstepd.scope/job_42/step_0/user/task_0",
	want: location{job: "42"},
}, {
	name: "Slurm, v2, seen from a container in system.slice",
	seen: "cgroup_namespaces(7)",
	file: "0::/../slurmstepd.scope/job_42/step_0/user/task_0",
	want: location{job: "42"},
}, {
	name: "a container in a job",
	seen: "https://slurm.schedmd.com/containers.html",
	file: "0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/libpod-<CTR-A>.scope",
	want: location{job: "5"},
}, {
	name: "slurmd in a pod",
	seen: "https://github.com/SlinkyProject/slurm-operator runs slurmd in pods; the groups are those of Slurm below the container's",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/system.slice/slurmstepd.scope/job_5/step_0/user/task_0",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "slurmd in our own container",
	seen: "the same",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/system.slice/slurmstepd.scope/job_5/step_0/user/task_0",
	own:  "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/system.slice/warpgauge.service",
	want: location{job: "5"},
}, {
	name: "a job that a job has made up",
	seen: "",
	file: "0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/system.slice/slurmstepd.scope/job_6",
	want: location{job: "5"},
}, {
	name: "a job that a user has made up",
	seen: "https://systemd.io/CGROUP_DELEGATION/",
	file: "0::/user.slice/user-1000.slice/user@1000.service/slurm/uid_1000/job_5/step_0",
	want: location{},
}, {
	name: "a job that a service has made up",
	seen: "",
	file: "0::/system.slice/slurm-web.service/slurmstepd.scope/job_5\n4:freezer:/batch/slurm/uid_0/job_5",
	want: location{},
}, {
	name: "a group that only looks like a job's",
	seen: "",
	file: "0::/batch/job_5/step_0",
	want: location{},
}, {
	name: "a group that only looks like a pod's",
	seen: "",
	file: "0::/podman/pod<UID-A>/run",
	want: location{},
}, {
	name: "a zombie whose group was removed",
	seen: "https://docs.kernel.org/admin-guide/cgroup-v2.html#processes",
	file: "0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope (deleted)",
	want: location{pod: uidA, container: ctrA},
}, {
	name: "a service",
	seen: "",
	file: "0::/system.slice/nvidia-persistenced.service",
	want: location{},
}, {
	name: "a session",
	seen: "",
	file: "0::/user.slice/user-1000.slice/session-3.scope",
	want: location{},
}, {
	name: "the root",
	seen: "",
	file: "0::/",
	want: location{},
}}

func TestControlGroups(t *testing.T) {
	for _, c := range trees {
		t.Run(c.name, func(t *testing.T) {
			own := cmp.Or(c.own, "0::/system.slice/warpgauge.service\n1:name=systemd:/system.slice/warpgauge.service")
			got, ok := parseCgroup([]byte(expand.Replace(c.file)+"\n"), surroundingsOf([]byte(expand.Replace(own)), false))
			if !ok || got != c.want {
				t.Errorf("%s\nseen: %s\ngot  %+v, %v\nwant %+v", c.file, c.seen, got, ok, c.want)
			}
		})
	}
}

// TestWhatOurOwnNamespaceHides: from a cgroup namespace of our own, what is in
// our own group or below it shows no pod though it is in ours.
func TestWhatOurOwnNamespaceHides(t *testing.T) {
	f := func(file string, want location) {
		t.Helper()
		if got, ok := parseCgroup([]byte(expand.Replace(file)), surroundingsOf([]byte("0::/\n4:memory:/\n"), true)); !ok || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", file, got, ok, want)
		}
	}
	f("0::/\n", location{unknown: true})
	f("0::/init.scope\n", location{unknown: true})
	f("4:memory:/\n0::/\n", location{unknown: true})
	f("0::/../../../system.slice/nvidia-persistenced.service\n", location{})
	f("0::/..\n", location{})
	f("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope\n", location{pod: uidB, container: ctrB})
}

func TestBrokenControlGroups(t *testing.T) {
	f := func(file string, want location, wantOK bool) {
		t.Helper()
		if got, ok := parseCgroup([]byte(expand.Replace(file)), surroundings{}); ok != wantOK || got != want {
			t.Errorf("%q: got %+v, %v, want %+v, %v", file, got, ok, want, wantOK)
		}
	}
	f("", location{}, false)
	f("\n\n", location{}, false)
	f("0:", location{}, false)
	f("0::", location{}, false)
	f("0::kubepods/pod<UID-A>", location{}, false)
	f("nonsense\n0::/kubepods/pod<UID-A>/<CTR-A>", location{pod: uidA, container: ctrA}, true)
	f("0::/kubepods/pod<UID-A>0/<CTR-A>", location{container: ctrA}, true)
	f("0::/kubepods/pod/<CTR-A>", location{container: ctrA}, true)
	f("0::/kubepods/podzzzzzzzz-bb13-42f4-a47a-45a4828bf54d/x", location{}, true)
	f("0::/kubepods/pod<UID-A>/<CTR-A>0", location{pod: uidA}, true)
	f("0::/slurm/job_/job_x/job_123456789012345678901", location{}, true)
	f("0::////::::/", location{}, true)
}

// FuzzControlGroups: containers choose the names of groups below their own.
func FuzzControlGroups(f *testing.F) {
	for _, c := range trees {
		f.Add([]byte(expand.Replace(c.file)), []byte(expand.Replace(c.own)), false)
	}
	f.Add([]byte("0::/\n"), []byte("0::/\n"), true)
	f.Fuzz(func(t *testing.T, file, own []byte, nested bool) {
		p, ok := parseCgroup(file, surroundingsOf(own, nested))
		if !ok && p != (location{}) {
			t.Errorf("no line is valid, and yet %+v", p)
		}
		if p.pod != "" && (!isUID(p.pod) || strings.Contains(p.pod, "_")) {
			t.Errorf("pod %q", p.pod)
		}
		if p.container != "" && (len(p.container) != 64 || !isHex(p.container)) {
			t.Errorf("container %q", p.container)
		}
		if p.job != "" && strings.Trim(p.job, "0123456789") != "" {
			t.Errorf("job %q", p.job)
		}
		if p.unknown && (!nested || p != location{unknown: true}) {
			t.Errorf("unknown: %+v, nested %v", p, nested)
		}
	})
}
