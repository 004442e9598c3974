package field

import (
	"regexp"
	"strings"
	"testing"
)

// Names of AMD's own fields follow Prometheus: base units and counters in _total.
func TestAMDNames(t *testing.T) {
	name := regexp.MustCompile(`^amd_gpu_[a-z0-9_]+$`)
	units := map[string]string{
		"celsius": "_celsius", "s": "_seconds_total", "ratio": "_ratio", "Hz": "_hertz", "V": "_volts", "1/min": "_rpm",
		"lanes": "_lanes", "bit/s": "_bits_per_second", "bytes/s": "_bytes_per_second", "cycles": "_total",
	}
	for i := range amdFields {
		d := &amdFields[i]
		if d.ID != AMDTemperature+ID(i) {
			t.Errorf("%s has id %d, want %d: ids go up without gaps", d.Name, d.ID, AMDTemperature+ID(i))
		}
		if got, scale, ok := ByName(d.Name); !ok || got != d || scale != 1 || !name.MatchString(d.Name) {
			t.Errorf("ByName(%q) = %v, %v, %v", d.Name, got, scale, ok)
		}
		if want, ok := units[d.Unit]; ok && !strings.HasSuffix(d.Name, want) {
			t.Errorf("%s is in %s: want a name that ends in %s", d.Name, d.Unit, want)
		}
		if d.Unit == "bytes" && !strings.HasSuffix(d.Name, "_bytes") && !strings.HasSuffix(d.Name, "_bytes_total") {
			t.Errorf("%s is in bytes", d.Name)
		}
		if strings.HasPrefix(d.Unit, "m") || strings.HasPrefix(d.Unit, "M") || strings.HasPrefix(d.Unit, "k") {
			t.Errorf("%s is in %s, which is no base unit", d.Name, d.Unit)
		}
	}
}
