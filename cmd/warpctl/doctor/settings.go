package doctor

import (
	"os"
	"slices"
	"strings"
)

// flags returns the settings of the exporter: arguments of the one that runs on this machine, and variables of doctor's own
// environment, which in a container are the exporter's.
func (s *system) flags(environ []string) []string {
	out := s.commandLine()
	for _, v := range environ {
		if name, _, _ := strings.Cut(v, "="); slices.ContainsFunc([]string{"WARPGAUGE_", "DCGM_", "NVIDIA_RESOURCE_"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out = append(out, v)
		}
	}
	return out
}

// rootsOf returns where the exporter looks for NVIDIA's libraries, if it is told.
func rootsOf(flags []string) (out []string) {
	for _, f := range flags {
		if name, roots, _ := strings.Cut(f, "="); name == "--nvml-driver-root" || name == "WARPGAUGE_NVML_DRIVER_ROOT" {
			out = append(out, strings.Split(roots, ",")...)
		}
	}
	return out
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
