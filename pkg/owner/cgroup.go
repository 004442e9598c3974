package owner

import (
	"cmp"
	"regexp"
	"strings"
)

// location is where a process runs, from its control groups.
type location struct {
	pod, container, job string
	// unknown means that the control groups are relative to ours, and that the process is in our group or below it: it
	// may belong to a pod although no group names one.
	unknown bool
}

// rank orders locations by how much they identify.
func (l location) rank() (n int) {
	if l.pod != "" {
		n += 2
	}
	if l.container != "" {
		n++
	}
	return n
}

// surroundings are our own control groups, from /proc/self/cgroup.
type surroundings struct {
	nested bool                // we have our own cgroup namespace
	paths  map[string][]string // by controllers of the hierarchy: the groups in our path, outermost first
}

// surroundingsOf parses our own /proc/self/cgroup.
func surroundingsOf(file []byte, nested bool) surroundings {
	out := surroundings{nested: nested, paths: map[string][]string{}}
	eachPath(file, func(controllers, path string) { out.paths[controllers] = groupsOf(path) })
	return out
}

// eachPath calls f for each line of /proc/<pid>/cgroup with a path.
func eachPath(file []byte, f func(controllers, path string)) {
	for line := range strings.Lines(string(file)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") {
			f(parts[1], strings.TrimSuffix(parts[2], " (deleted)")) // a zombie's group may be gone
		}
	}
}

// groupsOf splits a path. A runtime that is configured for slices but does not use systemd joins three groups to one:
// <slice>:<runtime>:<id>.
func groupsOf(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == ':' })
}

// parseCgroup parses /proc/<pid>/cgroup, lines of "hierarchy:controllers:path" (cgroups(7)). With cgroup v1 and in
// hybrid mode a process has a path per hierarchy, and the paths differ: for example systemd may leave a container's
// processes in its runtime's service in the unified hierarchy. The most informative path counts, or the first of
// several equal ones. ok is false if the file has no lines.
func parseCgroup(file []byte, own surroundings) (best location, ok bool) {
	outside := false
	eachPath(file, func(controllers, path string) {
		ok = true
		outside = outside || !own.nested || strings.HasPrefix(path, "/..")
		l := parsePath(groupsOf(path), own.paths[controllers])
		best.job = cmp.Or(best.job, l.job)
		if l.rank() > best.rank() {
			best.pod, best.container = l.pod, l.container
		}
	})
	best.unknown = ok && !outside && best == location{}
	return best, ok
}

// parsePath returns the outermost pod in the path of a control group with the container directly below it, or the
// outermost container, or the outermost Slurm job, whichever comes first. The kubelet, the runtime and slurmd of this
// machine know these. Groups further down were created inside the container or job: systemd's services, another Docker
// or Kubernetes, or groups with misleading names.
//
// A group that also surrounds ourselves is not the owner if a pod, container or job follows further down: an exporter
// in a pod of a cluster whose nodes are containers or pods asks the kubelet of such a node.
//
// Groups of a user's service manager do not count, unless the manager is our own user's, because the user chooses their
// names (systemd delegates user@<uid>.service to the user).
//
// The kubelet names a pod's group pod<uid> below kubepods (cgroupfs) or kubepods-<class>-pod<uid>.slice (systemd), with
// a prefix if it has another root (kind: kubelet-kubepods-…). Runtimes name containers <id> or <runtime>-<id>.scope.
// Inside a cgroup namespace, paths begin with "..", and kubepods may be invisible. Sources: pkg/kubelet/cm of
// kubernetes (cgroup_manager_linux.go), getCgroupsPath of containerd's CRI plugin, internal/config/cgmgr of cri-o,
// https://systemd.io/CGROUP_DELEGATION/.
func parsePath(path, own []string) (l location) {
	shared := 0 // number of groups that also surround us
	for shared < min(len(path), len(own)) && path[shared] == own[shared] {
		shared++
	}
	relative := len(path) > 0 && path[0] == ".."
	for len(path) > 0 && path[0] == ".." {
		path = path[1:]
	}
	if len(path) > 0 && path[0] == "user.slice" && shared < 2 { // another user's
		return location{}
	}
	around := true // no owner found yet, or the owner found also surrounds us
	from := 0      // the first group below the one found
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
		podman = part == "libpod_parent" // a pod of Podman follows, whose ID looks like a container's
		kubepods = part == "kubepods" || kubepods && (part == "burstable" || part == "besteffort")
	}
	return l
}

// Names of groups.
var (
	uidForm        = `([[:xdigit:]]{8}(?:[-_][[:xdigit:]]{4}){3}[-_][[:xdigit:]]{12}|[[:xdigit:]]{32})` // a UUID, or the kubelet's hash of a static pod's manifest
	podSlice       = regexp.MustCompile(`kubepods.*-pod` + uidForm + `\.slice$`)
	podGroup       = regexp.MustCompile(`^pod` + uidForm + `$`)
	containerGroup = regexp.MustCompile(`^(?:.*-)?([[:xdigit:]]{64})(?:\.scope)?$`)
	monitorGroup   = regexp.MustCompile(`conmon-[^-]*$|-conmon(?:\.scope)?$`)
	jobGroup       = regexp.MustCompile(`^(?:slurm(?:_[^/]*)?/uid_[^/]*|system\.slice/(?:[^/]*_)?slurmstepd\.scope)/job_(\d{1,20})$`)
	jobInScope     = regexp.MustCompile(`^(?:[^/]*_)?slurmstepd\.scope/job_(\d{1,20})$`)
)

// submatch returns what the expression's group matches in s, "" if s does not match.
func submatch(form *regexp.Regexp, s string) string {
	if m := form.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

// podOf returns the UID in the name of a pod's group, in Kubernetes' spelling. plain also accepts pod<uid>, a pod's
// name only directly below kubepods and its classes.
func podOf(part string, plain bool) string {
	uid := submatch(podSlice, part)
	if uid == "" && plain {
		uid = submatch(podGroup, part)
	}
	return strings.ReplaceAll(uid, "_", "-") // "-" separates levels in the names of slices
}

// containerOf returns the ID in the name of a container's group. monitor reports that it is the group of the runtime's
// own process for a container (conmon of cri-o and podman), whose processes are in no container.
func containerOf(part string) (id string, monitor bool) {
	if monitorGroup.MatchString(part) {
		return "", true
	}
	return submatch(containerGroup, part), false
}

// jobOf returns the number of the job whose group is the last of groups. Slurm's groups are
// /slurm/uid_<n>/job_<n>/step_<n>/… (v1; /slurm_<node> if a machine has several slurmd) and
// /system.slice/slurmstepd.scope/job_<n>/… (v2; <node>_slurmstepd.scope). The same names elsewhere are not Slurm's. relative
// means that we may be in system.slice ourselves, so that it is invisible. Source: https://slurm.schedmd.com/cgroup_v2.html
func jobOf(groups []string, relative bool) string {
	path := strings.Join(groups, "/")
	if job := submatch(jobGroup, path); job != "" || !relative {
		return job
	}
	return submatch(jobInScope, path)
}
