package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/field"
)

// Severity says how bad a finding is.
type Severity string

// Severities, the worst first.
const (
	Problem Severity = "problem" // something is wrong
	Unknown Severity = "unknown" // it could not be found out
	Note    Severity = "note"    // worth to know
	OK      Severity = "ok"
)

// Finding is the result of a check, with advice.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Finding  string   `json:"finding"`
	Do       string   `json:"do,omitempty"`
}

// findings collects the findings of one check.
type findings struct {
	check string
	all   []Finding
}

func (f *findings) add(s Severity, do, format string, args ...any) {
	f.all = append(f.all, Finding{f.check, s, fmt.Sprintf(format, args...), do})
}

// checks run in this order, the machine first, then the programs that depend on it. A check that
// does not apply to this machine adds nothing.
var checks = []struct {
	name string
	make func(*Facts, *findings)
}{
	{"clock", checkClock},
	{"NVIDIA driver", checkNVIDIADriver},
	{"NVIDIA device nodes", checkNVIDIANodes},
	{"NVIDIA library", checkNVIDIALibrary},
	{"NVIDIA persistence", checkPersistence},
	{"AMD driver", checkAMDDriver},
	{"AMD device nodes", checkAMDNodes},
	{"container", checkContainer},
	{"exporter", checkExporter},
	{"collectors", checkCollectors},
	{"devices", checkDevices},
	{"health", checkHealth},
	{"field list", checkList},
	{"absent values", checkAbsent},
	{"kubelet and other servers", checkSockets},
	{"log", checkLog},
	{"probes", checkUnread},
}

// firstDay is before this program was written.
var firstDay = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func checkClock(f *Facts, out *findings) {
	if runtime.GOOS != "linux" {
		out.add(Note, "run warpctl doctor on the node", "this machine is not examined: doctor examines Linux nodes only, this is %s", runtime.GOOS)
		return
	}
	switch set := f.Host.Synchronized; {
	case f.Time.Before(firstDay):
		out.add(Problem, "set the clock, and see that chronyd or systemd-timesyncd runs", "the system's clock says %s, which is in the past", f.Time.Format(time.DateOnly))
	case set == nil:
		out.add(Unknown, "", "whether the clock is synchronized")
	case !*set:
		out.add(Note, "see that chronyd or systemd-timesyncd runs: time stamps of samples and events are this clock's", "the kernel says that the clock is not synchronized")
	default:
		out.add(OK, "", "the clock is synchronized")
	}
}

func checkNVIDIADriver(f *Facts, out *findings) {
	n := &f.NVIDIA
	if len(n.GPUs) == 0 {
		if n.Module != "" {
			out.add(OK, "", "kernel module nvidia %s is loaded", n.Module)
		}
		return
	}
	var others []string
	for _, g := range n.GPUs {
		if g.Driver != field.VendorNVIDIA.Module && g.Driver != "" {
			others = append(others, g.Address+" "+g.Driver)
		}
	}
	switch {
	case n.Nouveau && n.Module == "":
		out.add(Problem, "blacklist nouveau (a file in /etc/modprobe.d with: blacklist nouveau), make the initramfs again, install NVIDIA's driver and restart",
			"%s, but the kernel module nouveau is loaded and NVIDIA's is not: nouveau has no metrics", counted(len(n.GPUs), "NVIDIA GPU"))
	case n.Module == "":
		out.add(Problem, "install NVIDIA's driver, or load it: modprobe nvidia; the kernel log (dmesg) says why it is not loaded, after a new kernel most often that it was not built for it",
			"%s on the PCI bus, but the kernel module nvidia is not loaded", counted(len(n.GPUs), "NVIDIA GPU"))
	default:
		out.add(OK, "", "%s, kernel module nvidia %s", counted(len(n.GPUs), "NVIDIA GPU"), n.Module)
	}
	if n.Nouveau && n.Module != "" {
		out.add(Note, "blacklist nouveau, or it takes GPUs that NVIDIA's module releases", "the kernel module nouveau is loaded next to NVIDIA's")
	}
	if n.Module != "" && len(others) > 0 {
		out.add(Note, "nothing, if they are for virtual machines (vfio-pci)", "GPUs of another driver: %s", list(others))
	}
}

func checkNVIDIANodes(f *Facts, out *findings) {
	n := &f.NVIDIA
	if n.Module == "" {
		return
	}
	control, gpus := false, 0
	for _, node := range n.Nodes {
		base := filepath.Base(node.Path)
		control = control || base == "nvidiactl"
		if isNumbered(base, "nvidia") {
			gpus++
		}
	}
	switch {
	case !control && f.Host.Container != "":
		out.add(Problem, "give the container the GPUs: in Kubernetes runtimeClassName: nvidia with NVIDIA_VISIBLE_DEVICES=all, or privileged with /dev mounted; docker run --gpus all; podman run --device nvidia.com/gpu=all",
			"the driver is loaded, but this container has no /dev/nvidiactl")
	case !control:
		out.add(Problem, "run nvidia-smi once as root, or nvidia-modprobe -c 0 -u, which make the device nodes; nvidia-persistenced does so at boot", "the driver is loaded, but there is no /dev/nvidiactl")
	case gpus == 0:
		out.add(Problem, "run nvidia-smi once as root, or give the container the GPUs", "there is no /dev/nvidia0 or other GPU's device node")
	case len(n.GPUs) > gpus:
		out.add(Note, "nothing, if the container is meant to have some of them, or others are of another driver", "%s on the PCI bus, device nodes of %d", counted(len(n.GPUs), "NVIDIA GPU"), gpus)
	}
	if closed(f, out, n.Nodes, func(name string) bool { return name == "nvidiactl" || isNumbered(name, "nvidia") }) == 0 && control && gpus > 0 {
		out.add(OK, "", "device nodes of %s can be opened", counted(gpus, "NVIDIA GPU"))
	}
}

// isNumbered reports whether a name is a prefix and a number.
func isNumbered(name, prefix string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// closed adds a finding for the device nodes that matter and cannot be opened, and returns their number.
func closed(f *Facts, out *findings, nodes []Node, matters func(string) bool) (count int) {
	by := map[string][]string{}
	for _, n := range nodes {
		if n.Access != "ok" && matters(filepath.Base(n.Path)) {
			by[n.Access+" ("+n.Mode+" "+n.Owner+")"] = append(by[n.Access+" ("+n.Mode+" "+n.Owner+")"], n.Path)
			count++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		do := "run the exporter with the group of the device node (systemd: SupplementaryGroups=, Kubernetes: supplementalGroups), or give the node mode 0666"
		if strings.HasPrefix(why, "operation not permitted") {
			do = "the device control group of the container or unit forbids it: give the container the GPUs, or allow them with DeviceAllow="
		}
		out.add(Problem, do, "user %s cannot open %s: %s", cmp.Or(f.Host.User, "?"), list(by[why]), why)
	}
	return count
}

func checkNVIDIALibrary(f *Facts, out *findings) {
	n := &f.NVIDIA
	if n.Module == "" {
		return
	}
	if len(n.Libraries) == 0 {
		out.add(Problem, "install the driver's libraries (libnvidia-ml, part of every driver package); in a container set NVIDIA_DRIVER_CAPABILITIES=utility,compute; elsewhere name the place with --nvml-library or --nvml-driver-root",
			"kernel module nvidia %s is loaded, but libnvidia-ml.so.1 is not in any of the usual places", n.Module)
		return
	}
	var other []string
	for _, l := range n.Libraries {
		if v := versionOf(l); v == n.Module {
			out.add(OK, "", "%s is of the loaded driver", l)
			return
		} else if v != "" {
			other = append(other, l)
		}
	}
	if len(other) > 0 {
		out.add(Problem, "after an upgrade of the driver restart the machine, or unload and load its modules; in a container see that it has the host's library and not one from its image",
			"the kernel module is %s and the library another: %s; NVML refuses to work like that (driver/library version mismatch)", n.Module, list(other))
		return
	}
	out.add(Unknown, "", "the version of %s: its name does not have it", list(n.Libraries))
}

func checkPersistence(f *Facts, out *findings) {
	off := 0
	f.eachField(func(d *apiv1.Device, v *apiv1.Field) {
		if v.Value != nil && *v.Value == 0 && (v.Name == "DCGM_FI_DEV_PERSISTENCE_MODE" || v.Name == "DCGM_FI_DEV_GPU_PERSISTENCE_MODE") {
			off++
		}
	})
	switch {
	case off > 0:
		out.add(Note, "enable nvidia-persistenced: without it the driver initialises a GPU at each opening, which takes seconds, and loses settings", "persistence mode is off on %s", counted(off, "GPU"))
	case f.NVIDIA.Module != "" && !f.NVIDIA.Persistence && f.Host.Container == "":
		out.add(Note, "enable nvidia-persistenced, unless persistence mode is set by nvidia-smi -pm 1", "nvidia-persistenced does not run")
	}
}

func checkAMDDriver(f *Facts, out *findings) {
	a := &f.AMD
	if len(a.GPUs) == 0 {
		return
	}
	var without []string
	for _, g := range a.GPUs {
		if g.Driver != field.VendorAMD.Module {
			without = append(without, strings.TrimSpace(g.Address+" "+g.Driver))
		}
	}
	switch {
	case len(without) == len(a.GPUs):
		out.add(Problem, "load the driver: modprobe amdgpu; the kernel log (dmesg) says why it does not take the GPUs", "%s, none with the driver amdgpu", counted(len(a.GPUs), "AMD GPU"))
	case len(without) > 0:
		out.add(Note, "nothing, if they are for virtual machines", "AMD GPUs without the driver amdgpu: %s", list(without))
	default:
		out.add(OK, "", "%s, amdgpu %s", counted(len(a.GPUs), "AMD GPU"), a.Module)
	}
}

func checkAMDNodes(f *Facts, out *findings) {
	a := &f.AMD
	if len(a.GPUs) == 0 || a.Module == "" {
		return
	}
	if closed(f, out, a.Nodes, func(name string) bool { return name == "kfd" || isNumbered(name, "renderD") }) > 0 {
		for i := range out.all { // values are read from /sys
			out.all[i].Severity = Note
			out.all[i].Do = "nothing for metrics from /sys; --rocm-source=smi needs the groups render and video"
		}
	}
}

func checkContainer(f *Facts, out *findings) {
	h := &f.Host
	switch {
	case h.Container == "":
		return
	case h.DeviceRules != "" && !strings.Contains(h.DeviceRules, "a *:*") && !strings.Contains(h.DeviceRules, "c 195:") && f.NVIDIA.Module != "":
		out.add(Problem, "give the container the GPUs (see NVIDIA device nodes)", "the device control group of this container does not allow NVIDIA's devices (195)")
	default:
		out.add(OK, "", "doctor runs in a container (%s), and sees what that shows", h.Container)
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// mostNamed is how many things a finding names.
const mostNamed = 8

func list(names []string) string {
	if len(names) > mostNamed {
		return strings.Join(names[:mostNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-mostNamed)
	}
	return strings.Join(names, ", ")
}
