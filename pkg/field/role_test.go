package field

import (
	"testing"

	"warpgauge/internal/testkit"
)

// The readings of all vendors have the roles that a page shows, and values convert to the role's unit.
func TestRoles(t *testing.T) {
	f := func(name string, labels []string, role Role, rank int) {
		t.Helper()
		d, _, _ := ByName(name)
		m, ok := d.RoleOf(labels...)
		testkit.ErrorIf(t, ok != (role != "") || m.Role != role || m.Rank != rank, "%s %v has role %q with rank %d, want %q with %d", name, labels, m.Role, m.Rank, role, rank)
	}
	f("DCGM_FI_DEV_GPU_TEMP", nil, RoleTemperature, 0)
	f("DCGM_FI_DEV_GPU_TEMP_CELSIUS", nil, RoleTemperature, 0)
	f("DCGM_FI_PROF_GR_ENGINE_ACTIVE", nil, RoleActivity, 1)
	f("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", nil, RoleClockEvents, 0)
	f("DCGM_FI_DEV_FAN_SPEED", nil, "", 0)
	f("amd_gpu_temperature_celsius", []string{"edge"}, RoleTemperature, 10)
	f("amd_gpu_temperature_celsius", []string{"junction"}, RoleTemperature, 11)
	f("amd_gpu_temperature_celsius", []string{"mem"}, RoleMemoryTemperature, 12)
	f("amd_gpu_temperature_celsius", []string{"vrsoc"}, "", 0)
	f("amd_gpu_temperature_celsius", nil, "", 0)
	f("amd_gpu_memory_used_bytes", []string{"vram"}, RoleMemoryUsed, 10)
	f("amd_gpu_memory_used_bytes", []string{"gtt"}, "", 0)
	f("amd_gpu_throttle_active", []string{"power"}, RoleThrottling, 10)
	for _, d := range All() {
		for _, m := range d.Meanings {
			unit := m.Role.Unit()
			testkit.ErrorIf(t, unit != "" && unit != d.Unit && UnitFactor(d.Unit, unit) == 1, "%s is in %s, its role %s in %s", d.Name, d.Unit, m.Role, unit)
		}
	}
}
