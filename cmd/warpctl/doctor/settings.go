package doctor

import (
	"os"
	"slices"
	"strings"
)

// flags returns the exporter's settings: arguments of the running exporter, and variables of doctor's own environment,
// which in a container is the exporter's.
func (s *system) flags(environ []string) []string {
	out := s.commandLine()
	for _, v := range environ {
		if name, _, _ := strings.Cut(v, "="); slices.ContainsFunc([]string{"WARPGAUGE_", "DCGM_", "NVIDIA_RESOURCE_"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out = append(out, v)
		}
	}
	return out
}

// rootsOf returns the configured directories of NVIDIA's libraries.
func rootsOf(flags []string) (out []string) {
	for _, f := range flags {
		if name, roots, _ := strings.Cut(f, "="); name == "--nvml-driver-root" || name == "WARPGAUGE_NVML_DRIVER_ROOT" {
			out = append(out, strings.Split(roots, ",")...)
		}
	}
	return out
}

// commandLine returns the arguments of the exporter on this machine, if exactly one runs. It skips the exporter's
// children and other commands, whose first argument is not a flag.
func (s *system) commandLine() (args []string) {
	processes, _ := os.ReadDir(s.path("/proc")) // without /proc there is no command line
	found := 0
	for _, p := range processes {
		dir := "/proc/" + p.Name()
		if s.text(dir+"/comm") != "warpgauge" { // unlike cmdline, comm never blocks on the process
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
