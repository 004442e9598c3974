package process

import "bytes"

// place is where a process runs, as its control groups tell.
type place struct {
	pod, container, job string
	// unknown says that the control groups are told relative to our own, and that
	// this one is ours or below it: that it names no pod does not say that there
	// is none.
	unknown bool
}

// parseCgroup reads /proc/<pid>/cgroup, lines of "hierarchy:controllers:path"
// (cgroups(7)). With cgroup v1 and in hybrid mode a process has a path in each
// hierarchy, and they differ: systemd may leave a container's processes in the
// service of its runtime in the unified one, say. The path that tells most
// counts, and of equals the first. ok is false if there is no line at all.
// nested says that we are in a cgroup namespace of our own.
func parseCgroup(file []byte, nested bool) (p place, ok bool) {
	var best spot
	outside := false
	for len(file) > 0 {
		var line []byte
		line, file, _ = bytes.Cut(file, []byte{'\n'})
		path, valid := cgroupPath(line)
		if !valid {
			continue
		}
		ok = true
		outside = outside || !nested || bytes.HasPrefix(path, []byte("/.."))
		s := parsePath(path)
		if s.rank() > best.rank() {
			best.pod, best.container = s.pod, s.container
		}
		if best.job == nil {
			best.job = s.job
		}
	}
	if !ok {
		return place{}, false
	}
	p = place{pod: podUID(best.pod), container: string(best.container), job: string(best.job)}
	p.unknown = !outside && p == place{}
	return p, true
}

func cgroupPath(line []byte) ([]byte, bool) {
	_, rest, ok := bytes.Cut(line, []byte{':'})
	if !ok {
		return nil, false
	}
	_, path, ok := bytes.Cut(rest, []byte{':'})
	if !ok || len(path) == 0 || path[0] != '/' {
		return nil, false
	}
	return bytes.TrimSuffix(path, []byte(" (deleted)")), true // the group of a zombie may be gone
}

// podUID returns the uid as Kubernetes writes it: in the names of systemd's
// slices "-" separates levels, so the kubelet writes "_".
func podUID(b []byte) string {
	for i, c := range b {
		if c == '_' {
			uid := bytes.Clone(b)
			for ; i < len(uid); i++ {
				if uid[i] == '_' {
					uid[i] = '-'
				}
			}
			return string(uid)
		}
	}
	return string(b)
}
