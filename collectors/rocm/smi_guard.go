package rocm

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// refuses says why the library must not be asked this, "" where it may. What it
// must not be asked is read from /sys instead: looking at the file first would
// leave a moment in which its text can change.
func (s *smiShared) refuses(f smiFunction) string {
	rocm6 := s.lib.has(smiPower)
	switch f {
	case smiECCCount:
		// A third line or none, "Query currently inaccessible" during a reset:
		// with asserts the process ends, and before ROCm 6 without them too,
		// as the line that lacks is read all the same.
		if s.build.asserts || !rocm6 {
			return "ends the process when a GPU resets"
		}
	case smiBadPages:
		if s.build.asserts {
			return "ends the process on text that it does not expect"
		}
	case smiClock:
		// "S: 19Mhz *", deep sleep, which ROCm 5 does not know.
		if s.build.asserts {
			return "ends the process when a GPU sleeps"
		}
	}
	return ""
}

// expects reports whether the reading's file is there. It looks and does not
// read, so that nothing can hang or wake a board up, except for labels, which
// the driver knows by heart.
func (r *smiReading) expects(gpu, monitor string) bool {
	if !r.sensors {
		return exists(filepath.Join(gpu, r.file))
	}
	// Without sensors these functions follow a null pointer before ROCm 6.
	if monitor == "" {
		return false
	}
	if r.ask.function == smiSocketPower {
		// The library compares the label, the driver has others, too.
		text, err := os.ReadFile(filepath.Join(monitor, "power1_label"))
		if err != nil || strings.TrimSpace(string(text)) != "PPT" {
			return false
		}
	}
	if r.label == "" {
		return exists(filepath.Join(monitor, r.file))
	}
	labels, err := filepath.Glob(filepath.Join(monitor, "temp*_label"))
	if err != nil {
		return false
	}
	for _, l := range labels {
		text, err := os.ReadFile(l)
		if err != nil || strings.TrimSpace(string(text)) != r.label {
			continue
		}
		n := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(l), "temp"), "_label")
		return exists(filepath.Join(monitor, strings.Replace(r.file, "N", n, 1)))
	}
	return false
}

// hasVRAM reports whether the GPU has memory of its own. Where the driver says
// that it has none, newer libraries open /dev/kfd to find some, and the exporter
// would count as a process on the GPU.
func hasVRAM(gpu string) bool {
	text, err := os.ReadFile(filepath.Join(gpu, "mem_info_vram_total"))
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return err == nil && n > 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
