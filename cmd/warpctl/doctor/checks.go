package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// Severity is the severity of a finding.
type Severity string

// Severities, the worst first.
const (
	Problem Severity = "problem" // something is wrong
	Unknown Severity = "unknown" // doctor could not find out
	Note    Severity = "note"    // worth knowing
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

// checks run in this order: the machine first, then the programs that depend on it. A check that
// does not apply adds nothing.
var checks = []struct {
	name string
	make func(*Facts, *findings)
}{
	{"system", checkSystem},
	{"driver", ofVendors(checkDriver)},
	{"device nodes", ofVendors(checkNodes)},
	{"library", ofVendors(checkLibrary)},
	{"persistence", ofVendors(checkPersistence)},
	{"container", checkContainer},
	{"exporter", checkExporter},
	{"collectors", checkCollectors},
	{"devices", checkDevices},
	{"health", checkHealth},
	{"field list", checkList},
	{"absent values", checkAbsent},
	{"mappings", checkMappings},
	{"log", checkLog},
	{"probes", checkUnread},
}

func checkSystem(_ *Facts, out *findings) {
	if runtime.GOOS != "linux" {
		out.add(Note, "run warpctl doctor on the node", "this machine is not examined: doctor examines Linux nodes only, this is %s", runtime.GOOS)
	}
}

// ofVendors returns a check that runs for each vendor. Its findings have the vendor's name.
func ofVendors(check func(*Facts, *findings, *field.Vendor, *Driver)) func(*Facts, *findings) {
	return func(f *Facts, out *findings) {
		what := out.check
		for _, v := range field.Vendors() {
			if d := f.Drivers[v.Name]; d != nil {
				out.check = v.Name + " " + what
				check(f, out, v, d)
			}
		}
	}
}

func checkDriver(_ *Facts, out *findings, v *field.Vendor, d *Driver) {
	gpus := config.Counted(len(d.GPUs), v.Name+" GPU")
	load := fmt.Sprintf("install %s's driver, or load it: modprobe %s; the kernel log (dmesg) says why it is not loaded or does not take the GPUs, after a new kernel most often that it was not built for it", v.Name, v.Module)
	if len(d.GPUs) == 0 {
		if d.Module != "" {
			out.add(OK, "", "kernel module %s %s is loaded", v.Module, d.Module)
		}
		return
	}
	switch {
	case d.Rival && d.Module == "":
		out.add(Problem, fmt.Sprintf("blacklist %s (a file in /etc/modprobe.d with: blacklist %[1]s), make the initramfs again, install %s's driver and restart", v.Rival, v.Name),
			"%s, but the kernel module %s is loaded and %s's is not: %[2]s has no metrics", gpus, v.Rival, v.Name)
		return
	case d.Module == "":
		out.add(Problem, load, "%s on the PCI bus, but the kernel module %s is not loaded", gpus, v.Module)
		return
	}
	var others, none []string
	for _, g := range d.GPUs {
		switch g.Driver {
		case v.Module:
		case "":
			none = append(none, g.Address)
		default:
			others = append(others, g.Address+" "+g.Driver)
		}
	}
	if len(none) == len(d.GPUs) {
		out.add(Problem, load, "%s, none with the driver %s", gpus, v.Module)
	} else {
		out.add(OK, "", "%s, kernel module %s %s", gpus, v.Module, d.Module)
	}
	if d.Rival {
		out.add(Note, "blacklist "+v.Rival+", or it takes GPUs that "+v.Name+"'s module releases", "the kernel module %s is loaded next to %s's", v.Rival, v.Name)
	}
	if len(others) > 0 {
		out.add(Note, "nothing, if they are for virtual machines (vfio-pci)", "GPUs of another driver: %s", list(others))
	}
}

func checkNodes(f *Facts, out *findings, v *field.Vendor, d *Driver) {
	if d.Module == "" || len(d.GPUs) == 0 && len(d.Nodes) == 0 {
		return
	}
	control, gpus, closed := len(v.Control) == 0, 0, map[string][]string{}
	for _, n := range d.Nodes {
		isControl, gpu := slices.Contains(v.Control, n.Path), isGPU(v, n.Path)
		control = control || isControl
		if gpu {
			gpus++
		}
		if why := n.Access + " (" + n.Mode + " " + n.Owner + ")"; n.Access != "ok" && (isControl || gpu) {
			closed[why] = append(closed[why], n.Path)
		}
	}
	add := func(s Severity, do, format string, args ...any) {
		if v.NodesOptional != "" {
			s, do = Note, v.NodesOptional
		}
		out.add(s, do, format, args...)
	}
	advice := cmp.Or(v.NodeAdvice, "the kernel log (dmesg) says why the driver made no device nodes; give a container the GPUs")
	switch {
	case !control && f.Host.Container != "":
		add(Problem, advice, "the driver is loaded, but this container has no %s", v.Control[0])
	case !control:
		add(Problem, advice, "the driver is loaded, but there is no %s", v.Control[0])
	case gpus == 0:
		add(Problem, advice, "there is no device node of a GPU, %s", strings.ReplaceAll(strings.Join(v.Nodes, " or "), "*", "0"))
	case len(d.GPUs) > gpus:
		add(Note, "nothing, if the container is meant to have some of them, or others are of another driver", "%s on the PCI bus, device nodes of %d", config.Counted(len(d.GPUs), v.Name+" GPU"), gpus)
	}
	for _, why := range slices.Sorted(maps.Keys(closed)) {
		do := "run the exporter with the group of the device node (systemd: SupplementaryGroups=, Kubernetes: supplementalGroups), or give the node mode 0666"
		if strings.HasPrefix(why, "operation not permitted") {
			do = "the device control group of the container or unit forbids it: give the container the GPUs, or allow them with DeviceAllow="
		}
		add(Problem, do, "user %s cannot open %s: %s", cmp.Or(f.Host.User, "?"), list(closed[why]), why)
	}
	if len(closed) == 0 && control && gpus > 0 {
		out.add(OK, "", "device nodes of %s can be opened", config.Counted(gpus, v.Name+" GPU"))
	}
}

// isGPU reports whether a device node is a GPU's: one of the vendor's patterns with a number for *.
func isGPU(v *field.Vendor, node string) bool {
	return slices.ContainsFunc(v.Nodes, func(pattern string) bool {
		prefix, several := strings.CutSuffix(pattern, "*")
		digits, ok := strings.CutPrefix(node, prefix)
		return several && ok && digits != "" && strings.Trim(digits, "0123456789") == ""
	})
}

func checkLibrary(_ *Facts, out *findings, v *field.Vendor, d *Driver) {
	if d.Module == "" || v.LibraryAdvice == "" {
		return
	}
	var unknown, other []string
	for _, l := range d.Libraries {
		name, version, _ := strings.Cut(filepath.Base(l), ".so.")
		switch {
		case name != v.Libraries[0]:
		case version == d.Module:
			out.add(OK, "", "%s is of the loaded driver", l)
			return
		case versionInName.MatchString(version):
			other = append(other, l)
		default:
			unknown = append(unknown, l)
		}
	}
	switch {
	case len(other) > 0:
		out.add(Problem, "after an upgrade of the driver restart the machine, or unload and load its modules; in a container see that it has the host's library and not one from its image",
			"the kernel module is %s and the library another: %s; the library refuses to work like that (driver/library version mismatch)", d.Module, list(other))
	case len(unknown) > 0:
		out.add(Unknown, "", "the version of %s: its name does not have it", list(unknown))
	default:
		out.add(Problem, v.LibraryAdvice, "kernel module %s %s is loaded, but %s.so.1 is not in any of the usual places", v.Module, d.Module, v.Libraries[0])
	}
}

// versionInName matches the version in a library's file name.
var versionInName = regexp.MustCompile(`^[0-9]+\.[0-9]+(\.[0-9]+)*$`)

func checkPersistence(f *Facts, out *findings, v *field.Vendor, d *Driver) {
	if v.Daemon == "" {
		return
	}
	off, daemon := 0, filepath.Base(filepath.Dir(v.Daemon))
	f.eachField(func(_ *apiv1.Device, v *apiv1.Field) {
		if v.Value != nil && *v.Value == 0 && (v.Name == "DCGM_FI_DEV_PERSISTENCE_MODE" || v.Name == "DCGM_FI_DEV_GPU_PERSISTENCE_MODE") {
			off++
		}
	})
	switch {
	case off > 0:
		out.add(Note, "enable "+daemon+": without it the driver initialises a GPU at each opening, which takes seconds, and loses settings", "persistence mode is off on %s", config.Counted(off, "GPU"))
	case d.Module != "" && !d.Persistence && f.Host.Container == "":
		out.add(Note, "enable "+daemon+", unless persistence mode is set in another way", "%s does not run", daemon)
	}
}

func checkContainer(f *Facts, out *findings) {
	if c := f.Host.Container; c != "" {
		out.add(OK, "", "doctor runs in a container (%s), and sees what that shows", c)
	}
}

// maxNamed bounds the items that a finding lists.
const maxNamed = 8

func list(names []string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}
