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

// surroundings is where we are ourselves, as /proc/self/cgroup says.
type surroundings struct {
	nested bool                // in a cgroup namespace of our own
	paths  map[string][]string // by controllers of the hierarchy: the groups of our path, the outermost first
}

// surroundingsOf reads our own /proc/self/cgroup.
func surroundingsOf(file []byte, nested bool) surroundings {
	out := surroundings{nested: nested, paths: map[string][]string{}}
	eachPath(file, func(controllers, path string) { out.paths[controllers] = groupsOf(path) })
	return out
}

// eachPath calls f with each line of /proc/<pid>/cgroup that has a path.
func eachPath(file []byte, f func(controllers, path string)) {
	for line := range strings.Lines(string(file)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") {
			f(parts[1], strings.TrimSuffix(parts[2], " (deleted)")) // the group of a zombie may be gone
		}
	}
}

// groupsOf takes a path apart. A runtime that was configured for slices but does not use
// systemd makes one element <slice>:<runtime>:<id> of three.
func groupsOf(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == ':' })
}

// parseCgroup reads /proc/<pid>/cgroup, lines of "hierarchy:controllers:path"
// (cgroups(7)). With cgroup v1 and in hybrid mode a process has a path in each
// hierarchy, and they differ: systemd may leave a container's processes in the
// service of its runtime in the unified one, say. The path that says most
// counts, and of equals the first. ok is false if there is no line at all.
func parseCgroup(file []byte, own surroundings) (best location, ok bool) {
	outside := false
	eachPath(file, func(controllers, path string) {
		ok = true
		outside = outside || !own.nested || strings.HasPrefix(path, "/..")
		l := parsePath(groupsOf(path), own.paths[controllers])
		if best.job == "" {
			best.job = l.job
		}
		if l.rank() > best.rank() {
			best.pod, best.container = l.pod, l.container
		}
	})
	best.unknown = ok && !outside && best == location{}
	return best, ok
}

// parsePath finds the outermost pod in the path of a control group and the container right
// below it, or the outermost container, or the outermost job of Slurm, whichever comes first.
// Those are what the kubelet, the runtime and slurmd of this machine know. What is further down
// was made inside of the container or job: systemd's services, another Docker or
// Kubernetes, or groups with the names of others, which may claim to be anything.
//
// What is around ourselves, too, is not the owner if something of these is further down: an exporter
// in a pod of a cluster whose nodes are containers or pods asks the kubelet of such a node.
//
// What a user's own service manager makes counts for nothing, unless it is the manager of our
// own user: the user chooses the names (systemd delegates user@<uid>.service to it).
//
// The kubelet names a pod's group pod<uid> below kubepods (cgroupfs) or
// kubepods-<class>-pod<uid>.slice (systemd), with a prefix if it has another
// root (kind: kubelet-kubepods-…), and runtimes name containers' <id> or
// <runtime>-<id>.scope. From inside of a cgroup namespace, paths begin with "..", and
// kubepods may not be in sight.
// Sources: pkg/kubelet/cm of kubernetes (cgroup_manager_linux.go), getCgroupsPath
// of containerd's CRI plugin, internal/config/cgmgr of cri-o,
// https://systemd.io/CGROUP_DELEGATION/.
func parsePath(path, own []string) (l location) {
	shared := 0 // groups that are around us, too
	for shared < min(len(path), len(own)) && path[shared] == own[shared] {
		shared++
	}
	relative := len(path) > 0 && path[0] == ".."
	for len(path) > 0 && path[0] == ".." {
		path = path[1:]
	}
	if len(path) > 0 && path[0] == "user.slice" && shared < 2 { // of another user than ours
		return location{}
	}
	around := true // nothing was found, or what was found is around us, too
	from := 0      // the first group below that
	kubepods, monitor, podman := relative, false, false
	for i, part := range path {
		pod, job := podOf(part, kubepods), jobOf(path[from:i+1], relative)
		id, ofMonitor := containerOf(part)
		monitor = monitor || ofMonitor
		switch {
		case pod != "" && around:
			l, monitor = location{pod: pod}, false
		case job != "" && around:
			l = location{job: job}
		case id == "" || monitor || podman:
			id = ""
		case l.pod != "" && l.container == "":
			l.container = id
		case around:
			l = location{container: id}
		}
		if pod != "" || job != "" || id != "" {
			around, from = around && i < shared, i+1
		}
		podman = part == "libpod_parent" // below it is a pod of Podman's, whose id looks like a container's
		kubepods = part == "kubepods" || kubepods && (part == "burstable" || part == "besteffort")
	}
	return l
}

// podOf returns the uid in the name of a pod's group, as Kubernetes writes it. plain says
// that pod<uid> is such a name, too: it is so right below kubepods and its classes only.
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

// jobOf returns the number of the job whose group is the last of these. Slurm's are
// /slurm/uid_<n>/job_<n>/step_<n>/… (v1; /slurm_<node> if a machine has
// several slurmd) and /system.slice/slurmstepd.scope/job_<n>/… (v2;
// <node>_slurmstepd.scope). The same names anywhere else are not Slurm's. relative says that
// we may be in system.slice ourselves, so that it is not in sight.
// Source: https://slurm.schedmd.com/cgroup_v2.html
func jobOf(groups []string, relative bool) string {
	last := len(groups) - 1
	number, ok := strings.CutPrefix(groups[last], "job_")
	if !ok || number == "" || len(number) > 20 || strings.Trim(number, "0123456789") != "" {
		return ""
	}
	scope := func(s string) bool { return s == "slurmstepd.scope" || strings.HasSuffix(s, "_slurmstepd.scope") }
	switch {
	case last == 2 && groups[0] == "system.slice" && scope(groups[1]),
		last == 2 && (groups[0] == "slurm" || strings.HasPrefix(groups[0], "slurm_")) && strings.HasPrefix(groups[1], "uid_"),
		last == 1 && relative && scope(groups[0]):
		return number
	}
	return ""
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
