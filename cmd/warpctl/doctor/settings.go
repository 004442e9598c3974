package doctor

import (
	"os"
	"slices"
	"strings"
)

// Settings has the settings of the exporter that doctor checks.
type Settings struct {
	Flags         []string // that were set: --name=value or NAME=value
	KubeletSocket string   // "" if pods are not asked for
	RuntimeSocket string   // "" if it is not asked
	JobDirectory  string   // "" if it is not read
	HostEngine    string   // address, "" if DCGM is embedded
	DriverRoots   []string
}

// The exporter's flags that doctor knows, each with its short form and its variable.
var (
	flagKubernetes = flag{"kubernetes", "k", "DCGM_EXPORTER_KUBERNETES"}
	flagKubelet    = flag{"pod-resources-kubelet-socket", "", "DCGM_POD_RESOURCES_KUBELET_SOCKET"}
	flagRuntime    = flag{"container-runtime-socket", "", "DCGM_CONTAINER_RUNTIME_SOCKET"}
	flagJobs       = flag{"hpc-job-mapping-dir", "", "DCGM_HPC_JOB_MAPPING_DIR"}
	flagHostEngine = flag{"remote-hostengine-info", "r", "DCGM_REMOTE_HOSTENGINE_INFO"}
	flagDCGM       = flag{"enable-dcgm", "", "WARPGAUGE_ENABLE_DCGM"}
	flagRoots      = flag{"nvml-driver-root", "", "WARPGAUGE_NVML_DRIVER_ROOT"}
)

const defaultKubelet = "/var/lib/kubelet/pod-resources/kubelet.sock"

type flag struct{ name, short, variable string }

// settings reads the command line of the exporter that runs on this machine, and doctor's own environment: in a container
// that is the exporter's.
func (s *system) settings(environ []string) Settings {
	var out Settings
	args := s.commandLine()
	get := func(f flag) string { return f.value(args, environ) }
	if v := get(flagKubernetes); v != "" && v != "false" {
		if out.KubeletSocket = get(flagKubelet); out.KubeletSocket == "" {
			out.KubeletSocket = defaultKubelet
		}
	}
	out.RuntimeSocket, out.JobDirectory = get(flagRuntime), get(flagJobs)
	if get(flagDCGM) != "false" {
		out.HostEngine = get(flagHostEngine)
	}
	if roots := get(flagRoots); roots != "" {
		out.DriverRoots = strings.Split(roots, ",")
	}
	out.Flags = args
	for _, v := range environ {
		if name, _, _ := strings.Cut(v, "="); slices.ContainsFunc([]string{"WARPGAUGE_", "DCGM_", "NVIDIA_RESOURCE_"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out.Flags = append(out.Flags, v)
		}
	}
	return out
}

// value returns a flag's value from the arguments, which win, or the environment; "" if it is not set. A switch is "true".
func (f flag) value(args, environ []string) (value string) {
	for _, v := range environ {
		if rest, ok := strings.CutPrefix(v, f.variable+"="); ok {
			value = rest
		}
	}
	for i, arg := range args {
		name, v, has := strings.Cut(arg, "=")
		if bare := strings.TrimLeft(name, "-"); bare == name || bare != f.name && (bare != f.short || f.short == "") {
			continue
		}
		switch {
		case has:
			value = v
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			value = args[i+1]
		default:
			value = "true"
		}
	}
	return value
}

// commandLine returns the arguments of the exporter that runs on this machine, none if that is not exactly one process.
// Children of the exporter and its other commands have a first argument that is not a flag.
func (s *system) commandLine() (args []string) {
	processes, _ := os.ReadDir(s.path("/proc")) // without it there is no command line
	found := 0
	for _, p := range processes {
		dir := "/proc/" + p.Name()
		if s.text(dir+"/comm") != "warpgauge" { // unlike cmdline, comm never waits for the process
			continue
		}
		words := strings.Split(strings.TrimSuffix(s.text(dir+"/cmdline"), "\x00"), "\x00")
		if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
			continue
		}
		if found++; found > 1 {
			return nil
		}
		args = words[1:]
	}
	return args
}
