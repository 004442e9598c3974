package process

import "bytes"

// spot is what a path names; parts of the path.
type spot struct{ pod, container, job []byte }

// rank says how much of a container is known.
func (s *spot) rank() int {
	switch {
	case s.pod != nil && s.container != nil:
		return 3
	case s.pod != nil:
		return 2
	case s.container != nil:
		return 1
	}
	return 0
}

// parsePath finds the innermost pod in the path of a control group, the
// container right below it (what a container nests in itself, such as systemd's
// services or another Docker, is still that container), and a Slurm job. Without
// a pod it is the outermost container: the one that the machine's runtime knows.
//
// The kubelet names a pod's group pod<uid> below kubepods (cgroupfs) or
// kubepods-<class>-pod<uid>.slice (systemd), with a prefix where it has a root
// of its own (kind: kubelet-kubepods-…), and runtimes name containers' <id> or
// <runtime>-<id>.scope. A runtime that was told of slices but does not use
// systemd makes one element <slice>:<runtime>:<id>.
// Sources: pkg/kubelet/cm of kubernetes (cgroup_manager_linux.go), getCgroupsPath
// of containerd's CRI plugin, internal/config/cgmgr of cri-o.
func parsePath(path []byte) (s spot) {
	relative := bytes.HasPrefix(path, []byte("/.."))
	var kubepods, slurm, monitor, podman bool
	for len(path) > 0 {
		var part []byte
		if i := bytes.IndexAny(path, "/:"); i >= 0 {
			part, path = path[:i], path[i+1:]
		} else {
			part, path = path, nil
		}
		if pod := podOf(part, kubepods || relative); pod != nil {
			s.pod, s.container, monitor = pod, nil, false
			continue
		}
		id, ofMonitor := containerOf(part)
		monitor = monitor || ofMonitor
		if s.container == nil && !monitor && !podman {
			s.container = id
		}
		podman = bytes.Equal(part, []byte("libpod_parent")) // below it is a pod of Podman's, whose id looks like a container's
		if job := jobOf(part); job != nil && slurm {
			s.job = job
		}
		kubepods = kubepods || bytes.Equal(part, []byte("kubepods"))
		slurm = slurm || bytes.Contains(part, []byte("slurm"))
	}
	return s
}

// podOf returns the uid in the name of a pod's group, or nil. plain says that
// the short form is one, too: it is so below kubepods only.
func podOf(part []byte, plain bool) []byte {
	if slice, ok := bytes.CutSuffix(part, []byte(".slice")); ok {
		i := bytes.LastIndexByte(slice, '-')
		if i < 0 || !bytes.Contains(slice[:i], []byte("kubepods")) {
			return nil
		}
		part, plain = slice[i+1:], true
	}
	uid, ok := bytes.CutPrefix(part, []byte("pod"))
	if !ok || !plain || !isUID(uid) {
		return nil
	}
	return uid
}

// containerOf returns the id in the name of a container's group, or nil. monitor
// says that it is the group of a runtime's own process for a container, as
// cri-o's and podman's conmon has one; what is in it is in no container.
func containerOf(part []byte) (id []byte, monitor bool) {
	part = bytes.TrimSuffix(part, []byte(".scope"))
	i := bytes.LastIndexByte(part, '-')
	if bytes.HasSuffix(part[:max(i, 0)], []byte("conmon")) || bytes.HasSuffix(part, []byte("-conmon")) {
		return nil, true
	}
	if id = part[i+1:]; len(id) != containerIDLen || !isHex(id) {
		return nil, false
	}
	return id, false
}

// jobOf returns the number in job_<number>, or nil. Slurm's groups are
// /slurm/uid_<n>/job_<n>/step_<n>/… (v1; /slurm_<node> where a machine has
// several slurmd) and /system.slice/slurmstepd.scope/job_<n>/… (v2;
// <node>_slurmstepd.scope). Source: https://slurm.schedmd.com/cgroup_v2.html
func jobOf(part []byte) []byte {
	number, ok := bytes.CutPrefix(part, []byte("job_"))
	if !ok || len(number) == 0 || len(number) > 20 {
		return nil
	}
	for _, c := range number {
		if c < '0' || c > '9' {
			return nil
		}
	}
	return number
}

const (
	containerIDLen = 64
	uuidLen        = 36
	hashLen        = 32 // of a static pod, whose uid the kubelet makes of its manifest
)

// isUID reports whether b is a UUID, with "_" for "-" or not, or 32 hexadecimal digits.
func isUID(b []byte) bool {
	if len(b) == hashLen {
		return isHex(b)
	}
	if len(b) != uuidLen {
		return false
	}
	for i, c := range b {
		switch i {
		case 8, 13, 18, 23:
			if c != '-' && c != '_' {
				return false
			}
		default:
			if !isHexDigit(c) {
				return false
			}
		}
	}
	return true
}

func isHex(b []byte) bool {
	for _, c := range b {
		if !isHexDigit(c) {
			return false
		}
	}
	return true
}

func isHexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
