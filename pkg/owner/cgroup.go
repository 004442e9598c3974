package owner

import "strings"

// location is where a process runs, as its control groups say.
type location struct {
	pod, container, job string
	// unknown says that the control groups are named relative to our own, and that
	// this one is ours or below it: that it names no pod does not say that there
	// is none.
	unknown bool
}

// rank says how much of a container is known.
func (l location) rank() int {
	switch {
	case l.pod != "" && l.container != "":
		return 3
	case l.pod != "":
		return 2
	case l.container != "":
		return 1
	}
	return 0
}

// parseCgroup reads /proc/<pid>/cgroup, lines of "hierarchy:controllers:path"
// (cgroups(7)). With cgroup v1 and in hybrid mode a process has a path in each
// hierarchy, and they differ: systemd may leave a container's processes in the
// service of its runtime in the unified one, say. The path that says most
// counts, and of equals the first. ok is false if there is no line at all.
// nested says that we are in a cgroup namespace of our own.
func parseCgroup(file []byte, nested bool) (best location, ok bool) {
	outside := false
	for line := range strings.Lines(string(file)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		path := strings.TrimSuffix(parts[2], " (deleted)") // the group of a zombie may be gone
		ok = true
		outside = outside || !nested || strings.HasPrefix(path, "/..")
		l := parsePath(path)
		if best.job == "" {
			best.job = l.job
		}
		if l.rank() > best.rank() {
			best.pod, best.container = l.pod, l.container
		}
	}
	best.unknown = ok && !outside && best == location{}
	return best, ok
}

// parsePath finds the outermost pod in the path of a control group, the container right
// below it, and a Slurm job. Without a pod it is the outermost container. Those are what
// the kubelet, the runtime and slurmd of this machine know. What is further down was made
// inside of the container or job: systemd's services, another Docker or Kubernetes, or
// groups with the names of others, which may claim to be anything.
//
// The kubelet names a pod's group pod<uid> below kubepods (cgroupfs) or
// kubepods-<class>-pod<uid>.slice (systemd), with a prefix if it has another
// root (kind: kubelet-kubepods-…), and runtimes name containers' <id> or
// <runtime>-<id>.scope. A runtime that was configured for slices but does not use
// systemd makes one element <slice>:<runtime>:<id>.
// Sources: pkg/kubelet/cm of kubernetes (cgroup_manager_linux.go), getCgroupsPath
// of containerd's CRI plugin, internal/config/cgmgr of cri-o.
func parsePath(path string) (l location) {
	relative := strings.HasPrefix(path, "/..")
	var kubepods, slurm, monitor, podman bool
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == ':' }) {
		if l.pod == "" {
			if l.pod = podOf(part, kubepods || relative); l.pod != "" {
				l.container, monitor = "", false // a container around it is a node in a container
				continue
			}
		}
		id, ofMonitor := containerOf(part)
		monitor = monitor || ofMonitor
		if l.container == "" && !monitor && !podman {
			l.container = id
		}
		podman = part == "libpod_parent" // below it is a pod of Podman's, whose id looks like a container's
		if slurm && l.job == "" {
			l.job = jobOf(part)
		}
		kubepods = kubepods || part == "kubepods"
		slurm = slurm || strings.Contains(part, "slurm")
	}
	return l
}

// podOf returns the uid in the name of a pod's group, as Kubernetes writes it. plain says
// that pod<uid> is such a name, too: it is so below kubepods only.
func podOf(part string, plain bool) string {
	if slice, ok := strings.CutSuffix(part, ".slice"); ok {
		i := strings.LastIndexByte(slice, '-')
		if i < 0 || !strings.Contains(slice[:i], "kubepods") {
			return ""
		}
		part, plain = slice[i+1:], true
	}
	uid, ok := strings.CutPrefix(part, "pod")
	if !ok || !plain || !isUID(uid) {
		return ""
	}
	return strings.ReplaceAll(uid, "_", "-") // in the names of slices "-" separates levels
}

// containerOf returns the id in the name of a container's group. monitor says that it is
// the group of a runtime's own process for a container, as cri-o's and podman's conmon has
// one; what is in it is in no container.
func containerOf(part string) (id string, monitor bool) {
	part = strings.TrimSuffix(part, ".scope")
	i := strings.LastIndexByte(part, '-')
	if strings.HasSuffix(part[:max(i, 0)], "conmon") || strings.HasSuffix(part, "-conmon") {
		return "", true
	}
	const length = 64
	if id = part[i+1:]; len(id) != length || !isHex(id) {
		return "", false
	}
	return id, false
}

// jobOf returns the number in job_<number>. Slurm's groups are
// /slurm/uid_<n>/job_<n>/step_<n>/… (v1; /slurm_<node> if a machine has
// several slurmd) and /system.slice/slurmstepd.scope/job_<n>/… (v2;
// <node>_slurmstepd.scope). Source: https://slurm.schedmd.com/cgroup_v2.html
func jobOf(part string) string {
	number, ok := strings.CutPrefix(part, "job_")
	if !ok || len(number) > 20 || strings.Trim(number, "0123456789") != "" {
		return ""
	}
	return number
}

// isUID reports whether s is a UUID, with "_" for "-" or not, or 32 hexadecimal digits: the
// hash that the kubelet makes of the manifest of a static pod.
func isUID(s string) bool {
	const uuid, hash = 36, 32
	switch len(s) {
	case hash:
		return isHex(s)
	case uuid:
		for _, i := range []int{8, 13, 18, 23} {
			if s[i] != '-' && s[i] != '_' {
				return false
			}
		}
		return isHex(s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:])
	}
	return false
}
