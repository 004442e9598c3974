package owner

import (
	"cmp"
	"regexp"
	"strings"
	"testing"
)

// The cases shorten IDs: a pod's UID in three spellings, containers.
const (
	uidA  = "7d4424e6-bb13-42f4-a47a-45a4828bf54d"
	uidAs = "7d4424e6_bb13_42f4_a47a_45a4828bf54d"
	uidB  = "1e597579-417e-482f-bf65-5fe170c3aebd"
	uidBs = "1e597579_417e_482f_bf65_5fe170c3aebd"
	hash  = "8daa50c3a64c9ff60bb9eab7b44b56fd"
	ctrA  = "d0b3604b67ac7930dd34ba3a796627e3e4717d12309e90a4afe3f38b6816ac98"
	ctrB  = "a09bc17f5aa29b0dbdec9ede5f46cf1396d2405917ab02e6f1eb1019f388396e"
	node  = "88ea268ece65a02d68b169fd74bcbcb427eb7f28900db0e3b906fb2eeb7341df" // a container that runs a node
)

// expand replaces the short IDs by full ones.
var expand = strings.NewReplacer(
	"<UID_A>", uidAs, "<UID-A>", uidA, "<UID_B>", uidBs, "<UID-B>", uidB, "<HASH>", hash,
	"<CTR-A>", ctrA, "<CTR-B>", ctrB, "<NODE>", node)

// trees are control groups from real machines, or from the named source.
var trees = []struct {
	name string
	seen string // where it was seen
	file string // of the process
	own  string // our own group; "" for a service's
	want location
}{
	{"systemd, containerd, v2, burstable", "https://github.com/cryptnono/cryptnono/issues/47 (k3s, colima)",
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope", "", location{pod: uidA, container: ctrA}},
	{"systemd, cri-o, v2, crun", "https://github.com/sustainable-computing-io/kepler/pull/2359 (OpenShift); crun adds /container",
		"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<UID_A>.slice/crio-<CTR-A>.scope/container", "", location{pod: uidA, container: ctrA}},
	{"systemd, cri-o, v1", "https://github.com/opencontainers/runc/issues/4620",
		"13:freezer:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/crio-<CTR-A>.scope\n" +
			"11:files:/\n" +
			"10:hugetlb:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/crio-<CTR-A>.scope", "", location{pod: uidA, container: ctrA}},
	{"cri-o's conmon in its pod", "https://github.com/openshift/microshift/pull/697",
		"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<UID_A>.slice/crio-conmon-<CTR-A>.scope", "", location{pod: uidA}},
	{"cgroupfs, cri-o", "https://github.com/cri-o/cri-o/pull/812: crio-<id>",
		"0::/kubepods/besteffort/pod<UID-A>/crio-<CTR-A>", "", location{pod: uidA, container: ctrA}},
	{"cgroupfs, cri-o's conmon", "https://github.com/cri-o/cri-o/blob/main/internal/config/cgmgr/cgroupfs_linux.go: <parent>/crio-conmon-<id>",
		"0::/kubepods/besteffort/pod<UID-A>/crio-conmon-<CTR-A>", "", location{pod: uidA}},
	{"cgroupfs, containerd, v1", "https://github.com/sustainable-computing-io/kepler/issues/907 (EKS)",
		"12:cpuset:/kubepods/burstable/pod<UID-A>/<CTR-A>\n" +
			"5:misc:/kubepods/burstable/pod<UID-A>/<CTR-A>\n" +
			"1:name=systemd:/kubepods/burstable/pod<UID-A>/<CTR-A>\n" +
			"0::/", "", location{pod: uidA, container: ctrA}},
	{"Docker below a kubelet, systemd, v1", "https://github.com/lxc/lxc/issues/3890",
		"12:rdma:/\n" +
			"11:freezer:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/docker-<CTR-A>.scope", "", location{pod: uidA, container: ctrA}},
	{"slices for a containerd without systemd, hybrid", "https://github.com/open-telemetry/opentelemetry-java/issues/4507",
		"11:perf_event:/kubepods-besteffort-pod<UID_A>.slice:cri-containerd:<CTR-A>\n" +
			"10:blkio:/system.slice/containerd.service/kubepods-besteffort-pod<UID_A>.slice:cri-containerd:<CTR-A>\n" +
			"0::/system.slice/containerd.service", "", location{pod: uidA, container: ctrA}},
	{"the same of cri-o's monitor", "https://github.com/cri-o/cri-o/pull/812: slice, prefix and id are joined by colons",
		"0::/system.slice/kubepods-besteffort-pod<UID_A>.slice:crio-conmon:<CTR-A>", "", location{pod: uidA}},
	{"static pod, systemd", "https://github.com/netdata/netdata/issues/4868",
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<HASH>.slice/cri-containerd-<CTR-A>.scope", "", location{pod: hash, container: ctrA}},
	{"kind, systemd, from the machine: the container that is the node", "the same, below that container",
		"0::/system.slice/docker-<NODE>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope", "", location{container: node}},
	{"kind, systemd, from a pod of that node", "the same, below that container",
		"0::/system.slice/docker-<NODE>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
		"0::/system.slice/docker-<NODE>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope", location{pod: uidB, container: ctrB}},
	{"kind, systemd, from a pod of that node: a service of the node", "the same, below that container",
		"0::/system.slice/docker-<NODE>.scope/system.slice/containerd.service",
		"0::/system.slice/docker-<NODE>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope", location{container: node}},
	{"kind, cgroupfs, v1, from a pod of that node", "https://github.com/DataDog/datadog-agent/blob/main/pkg/util/cgroups/pid_mapper_test.go",
		"14:name=systemd:/docker/<NODE>/kubelet/kubepods/burstable/pod<UID-B>/<CTR-B>\n" +
			"13:rdma:/\n" +
			"0::/docker/<NODE>/system.slice/containerd.service",
		"14:name=systemd:/docker/<NODE>/kubelet/kubepods/pod<UID-A>/<CTR-A>\n" +
			"13:rdma:/\n" +
			"0::/docker/<NODE>/system.slice/containerd.service", location{pod: uidB, container: ctrB}},
	{"a node in a pod: the pod that the kubelet of this machine knows", "https://github.com/kubernetes/test-infra/pull/37440 (nodes in containers of a Docker in a pod)",
		"0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/dind/<NODE>/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope", "", location{pod: uidA, container: ctrA}},
	{"a node in a pod, from a pod of that node", "https://github.com/kubernetes/test-infra/pull/37440 (nodes in containers of a Docker in a pod)",
		"0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope",
		"0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<HASH>.slice/cri-containerd-<NODE>.scope", location{pod: uidB, container: ctrB}},
	{"a node in a pod, from a pod of that node: a group that was made in a pod there", "https://github.com/kubernetes/test-infra/pull/37440 (nodes in containers of a Docker in a pod)",
		"0::/kubepods/pod<UID-A>/<CTR-A>/kubepods/pod<UID-B>/<CTR-B>/kubepods/pod<HASH>/<NODE>",
		"0::/kubepods/pod<UID-A>/<CTR-A>/kubepods/pod<HASH>/<NODE>", location{pod: uidB, container: ctrB}},
	{"a node in a pod, from a pod of that node: a pod next to the node", "https://github.com/kubernetes/test-infra/pull/37440 (nodes in containers of a Docker in a pod)",
		"0::/kubepods/pod<UID-B>/<CTR-B>/kubepods/pod<UID-A>/<CTR-A>",
		"0::/kubepods/pod<UID-A>/<CTR-A>/kubepods/pod<HASH>/<NODE>", location{pod: uidB, container: ctrB}},
	{"another container of our own pod, and what was made in it", "cgroups(7)",
		"0::/kubepods/pod<UID-A>/<CTR-A>/kubepods/pod<UID-B>/<CTR-B>",
		"0::/kubepods/pod<UID-A>/<NODE>", location{pod: uidA, container: ctrA}},
	{"a group with the name of another pod, made in a container (audit S4)", "cgroups(7): a container that may write its own groups chooses their names",
		"0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope", "", location{pod: uidA, container: ctrA}},
	{"forged in a container, cgroupfs, v1, in one hierarchy", "cgroups(7)",
		"9:memory:/kubepods/besteffort/pod<UID-A>/<CTR-A>\n" +
			"1:name=systemd:/kubepods/besteffort/pod<UID-A>/<CTR-A>/kubepods/pod<UID-B>/<CTR-B>", "", location{pod: uidA, container: ctrA}},
	{"forged in a container of Docker", "cgroups(7)",
		"0::/system.slice/docker-<CTR-A>.scope/kubepods.slice/kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope", "", location{container: ctrA}},
	{"forged by a user whose service manager has its own groups", "https://systemd.io/CGROUP_DELEGATION/",
		"0::/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope", "", location{}},
	{"forged by a user, v1, from a cgroup namespace of our own", "https://systemd.io/CGROUP_DELEGATION/",
		"1:name=systemd:/../../../user.slice/user-1000.slice/user@1000.service/pod<UID-B>/<CTR-B>", "", location{}},
	{"a group that is named as a pod's, from a cgroup namespace of our own", "",
		"0::/../../system.slice/batch.service/pod<UID-B>/<CTR-B>", "", location{container: ctrB}},
	{"a kubelet of our own user", "https://docs.k3s.io/advanced#running-rootless-servers-experimental",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/k3s-rootless.service/kubepods/burstable/pod<UID-A>/<CTR-A>",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/k3s-rootless.service/kubepods/pod<UID-B>/<CTR-B>", location{pod: uidA, container: ctrA}},
	{"systemd in a container", "systemd makes its slices below its own group: https://systemd.io/CONTAINER_INTERFACE/",
		"0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/system.slice/train.service", "", location{pod: uidA, container: ctrA}},
	{"cgroup namespace of our own, another class", "https://github.com/gravitational/teleport, lib/tbot/workloadidentity/workloadattest/container (k3s 1.28.6); cgroup_namespaces(7)",
		"0::/../../../kubepods-burstable.slice/kubepods-burstable-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope", "", location{pod: uidA, container: ctrA}},
	{"cgroup namespace of our own, cgroupfs: kubepods is not in sight", "the same (OrbStack 1.6.4)",
		"0::/../../pod<UID-A>/<CTR-A>", "", location{pod: uidA, container: ctrA}},
	{"cgroup namespace of our own, a container of our own pod", "cgroup_namespaces(7)",
		"0::/../cri-containerd-<CTR-A>.scope", "", location{container: ctrA}},
	{"cgroup namespace of our own, in some of the hierarchies of a hybrid machine", "containerd 1.6.20 and runc 1.1.5 on Debian 12, from a process in a group of a besteffort pod with unshare --cgroup",
		"9:name=systemd:/../../../burstable/pod<UID-A>/<CTR-A>\n" +
			"7:blkio:/kubepods/burstable/pod<UID-A>/<CTR-A>\n" +
			"0::/../../../burstable/pod<UID-A>/<CTR-A>", "", location{pod: uidA, container: ctrA}},
	{"kubelet with another root", "https://github.com/kubernetes/kubernetes/issues/49281 (--cgroup-root=/container.slice)",
		"0::/container.slice/container-kubepods.slice/container-kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope", "", location{pod: uidA, container: ctrA}},
	{"kubelet without groups of pods", "containerd 1.6.20 with cgroup_parent \"/\", as the kubelet has it with cgroupsPerQOS: false",
		"9:memory:/<CTR-A>\n0::/", "", location{container: ctrA}},
	{"Docker, cgroupfs", "https://docs.docker.com/engine/containers/runmetrics/: /docker/<id>",
		"5:devices:/docker/<CTR-A>\n1:name=systemd:/docker/<CTR-A>", "", location{container: ctrA}},
	{"Docker, systemd", "https://docs.docker.com/engine/containers/runmetrics/: system.slice/docker-<id>.scope",
		"0::/system.slice/docker-<CTR-A>.scope", "", location{container: ctrA}},
	{"Docker in Docker: the one that the machine's Docker knows", "as above, nested",
		"0::/system.slice/docker-<CTR-A>.scope/docker/<CTR-B>", "", location{container: ctrA}},
	{"Podman, rootless: a container of ours", "https://github.com/podman-container-tools/podman/issues/20423",
		"0::/user.slice/user-0.slice/user@0.service/machine.slice/libpod-<CTR-A>.scope/container",
		"0::/user.slice/user-0.slice/session-1.scope", location{container: ctrA}},
	{"Podman, rootless: a container of another user, who could give it any name", "https://github.com/podman-container-tools/podman/issues/20423",
		"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-<CTR-A>.scope/container", "", location{}},
	{"Podman, one of its pods, systemd", "https://github.com/gravitational/teleport, lib/tbot/workloadidentity/workloadattest/container (Podman 4.3.1)",
		"0::/machine.slice/machine-libpod_pod_<NODE>.slice/libpod-<CTR-A>.scope/container", "", location{container: ctrA}},
	{"Podman, one of its pods, cgroupfs", "https://github.com/containers/podman/blob/main/libpod/pod_internal.go: libpod_parent/<pod>",
		"0::/libpod_parent/<NODE>/libpod-<CTR-A>", "", location{container: ctrA}},
	{"Podman's conmon", "https://github.com/falcosecurity/libs/pull/1613",
		"0::/machine.slice/libpod-conmon-<CTR-A>.scope", "", location{}},
	{"Slurm, v2", "https://slurm.schedmd.com/cgroup_v2.html",
		"0::/system.slice/slurmstepd.scope/job_1392969/step_0/user/task_0", "", location{job: "1392969"}},
	{"Slurm, v2, several slurmd on the machine", "https://github.com/rackslab/FireHPC/issues/6",
		"0::/system.slice/cn1_slurmstepd.scope/job_42/step_batch/user/task_special", "", location{job: "42"}},
	{"Slurm, v1", "https://github.com/SchedMD/slurm/pull/8",
		"12:pids:/system.slice/slurmd.service\n10:devices:/slurm/uid_2101171/job_280678/step_interactive/task_0\n1:name=systemd:/system.slice/slurmd.service", "", location{job: "280678"}},
	{"Slurm, v1, proctrack/cgroup and task/cgroup that constrains devices", "Slurm 22.05 on Debian 12, hybrid, a batch job",
		"9:name=systemd:/\n6:freezer:/slurm_vm/uid_0/job_1/step_batch\n5:devices:/slurm_vm/uid_0/job_1/step_batch/task_0\n0::/", "", location{job: "1"}},
	{"Slurm, v1, several slurmd on the machine", "https://github.com/plazonic/cgroup_exporter/pull/5",
		"7:freezer:/slurm_node1/uid_1000/job_7/step_0/task_0", "", location{job: "7"}},
	{"Slurm, v2, seen from a container", "cgroup_namespaces(7)",
		"0::/../../system.slice/slurmstepd.scope/job_42/step_0/user/task_0", "", location{job: "42"}},
	{"Slurm, v2, seen from a container in system.slice", "cgroup_namespaces(7)",
		"0::/../slurmstepd.scope/job_42/step_0/user/task_0", "", location{job: "42"}},
	{"a container in a job", "https://slurm.schedmd.com/containers.html",
		"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/libpod-<CTR-A>.scope", "", location{job: "5"}},
	{"slurmd in a pod", "https://github.com/SlinkyProject/slurm-operator runs slurmd in pods; the groups are those of Slurm below the container's",
		"0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/system.slice/slurmstepd.scope/job_5/step_0/user/task_0", "", location{pod: uidA, container: ctrA}},
	{"slurmd in our own container", "https://github.com/SlinkyProject/slurm-operator runs slurmd in pods; the groups are those of Slurm below the container's",
		"0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/system.slice/slurmstepd.scope/job_5/step_0/user/task_0",
		"0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope/system.slice/warpgauge.service", location{job: "5"}},
	{"a job that a job has made up", "",
		"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/system.slice/slurmstepd.scope/job_6", "", location{job: "5"}},
	{"a job that a user has made up", "https://systemd.io/CGROUP_DELEGATION/",
		"0::/user.slice/user-1000.slice/user@1000.service/slurm/uid_1000/job_5/step_0", "", location{}},
	{"a job that a service has made up", "",
		"0::/system.slice/slurm-web.service/slurmstepd.scope/job_5\n4:freezer:/batch/slurm/uid_0/job_5", "", location{}},
	{"a group that only looks like a job's", "",
		"0::/batch/job_5/step_0", "", location{}},
	{"a group that only looks like a pod's", "",
		"0::/podman/pod<UID-A>/run", "", location{}},
	{"a zombie whose group was removed", "https://docs.kernel.org/admin-guide/cgroup-v2.html#processes",
		"0::/kubepods.slice/kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope (deleted)", "", location{pod: uidA, container: ctrA}},
	{"a service", "",
		"0::/system.slice/nvidia-persistenced.service", "", location{}},
	{"the root", "",
		"0::/", "", location{}},
}

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

// TestWhatOurOwnNamespaceHides: inside our own cgroup namespace, paths in our own group or below it name no pod,
// although the processes run in our pod.
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

// FuzzControlGroups: containers choose the names of the groups below their own.
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
		if p.pod != "" && !regexp.MustCompile(`^[[:xdigit:]-]{32,36}$`).MatchString(p.pod) {
			t.Errorf("pod %q", p.pod)
		}
		if p.container != "" && !regexp.MustCompile(`^[[:xdigit:]]{64}$`).MatchString(p.container) {
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
