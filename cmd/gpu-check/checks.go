package main

import (
	"slices"
	"strings"
)

// check compares one series with a value of nvidia-smi.
type check struct {
	metric string
	// sources are tried in order, because versions of nvidia-smi use different names.
	sources []string
	how     how
	// abs and rel (relative to nvidia-smi's value) give the tolerance: nvidia-smi's value may be that far outside the
	// range between the page's values before and after.
	abs, rel float64
	scale    float64 // from nvidia-smi's unit to the page's; 0 means 1
}

type how int

const (
	exact  how = iota // never changes
	moving            // within the tolerance in most rounds
	text              // a label
)

// checks follows the order of DCGM's IDs. Tolerances: clocks move in steps of 15 MHz many times a second. Utilisation
// and power are means over a sixth of a second to a second, taken at another moment. Temperatures are whole degrees.
// Memory is in whole MiB.
var checks = []check{
	{metric: "DCGM_FI_DRIVER_VERSION", how: text, sources: []string{"csv:driver_version", "xml:driver_version"}},
	{metric: "DCGM_FI_DEV_NAME", how: text, sources: []string{"csv:name", "xml:product_name"}},
	{metric: "DCGM_FI_DEV_SERIAL", how: text, sources: []string{"csv:serial", "xml:serial"}},
	{metric: "DCGM_FI_DEV_UUID", how: text, sources: []string{"csv:uuid"}},
	{metric: "DCGM_FI_DEV_VBIOS_VERSION", how: text, sources: []string{"csv:vbios_version", "xml:vbios_version"}},
	{metric: "DCGM_FI_DEV_PCI_BUSID", how: text, sources: []string{"csv:pci.bus_id", "xml:pci/pci_bus_id"}},
	{metric: "DCGM_FI_DEV_INFOROM_IMAGE_VER", how: text, sources: []string{"csv:inforom.img", "xml:inforom_version/img_version"}},
	{metric: "DCGM_FI_DEV_OEM_INFOROM_VER", how: text, sources: []string{"csv:inforom.oem", "xml:inforom_version/oem_object"}},
	{metric: "DCGM_FI_DEV_ECC_INFOROM_VER", how: text, sources: []string{"csv:inforom.ecc", "xml:inforom_version/ecc_object"}},

	{metric: "DCGM_FI_DEV_COUNT", sources: []string{"csv:count"}},
	{metric: "DCGM_FI_DEV_NVML_INDEX", sources: []string{"csv:index"}},
	{metric: "DCGM_FI_DEV_MINOR_NUMBER", sources: []string{"xml:minor_number"}},
	{metric: "DCGM_FI_DEV_COMPUTE_MODE", sources: []string{"csv:compute_mode", "xml:compute_mode"}},
	{metric: "DCGM_FI_DEV_PERSISTENCE_MODE", sources: []string{"csv:persistence_mode", "xml:persistence_mode"}},
	{metric: "DCGM_FI_DEV_MIG_MODE", sources: []string{"csv:mig.mode.current", "xml:mig_mode/current_mig"}},
	{metric: "DCGM_FI_DEV_VIRTUAL_MODE", sources: []string{"xml:gpu_virtualization_mode/virtualization_mode"}},
	{metric: "DCGM_FI_DEV_BAR1_TOTAL", sources: []string{"xml:bar1_memory_usage/total"}, abs: 1},
	{metric: "DCGM_FI_DEV_BAR1_USED", how: moving, sources: []string{"xml:bar1_memory_usage/used"}, abs: 16},
	{metric: "DCGM_FI_DEV_BAR1_FREE", how: moving, sources: []string{"xml:bar1_memory_usage/free"}, abs: 16},

	{metric: "DCGM_FI_DEV_SM_CLOCK", how: moving, sources: []string{"csv:clocks.sm", "xml:clocks/sm_clock"}, abs: 45, rel: 0.05},
	{metric: "DCGM_FI_DEV_MEM_CLOCK", how: moving, sources: []string{"csv:clocks.mem", "xml:clocks/mem_clock"}, abs: 10},
	{metric: "DCGM_FI_DEV_VIDEO_CLOCK", how: moving, sources: []string{"csv:clocks.video", "xml:clocks/video_clock"}, abs: 45, rel: 0.05},
	{metric: "DCGM_FI_DEV_APP_SM_CLOCK", sources: []string{"csv:clocks.applications.graphics", "xml:applications_clocks/graphics_clock"}},
	{metric: "DCGM_FI_DEV_APP_MEM_CLOCK", sources: []string{"csv:clocks.applications.memory", "xml:applications_clocks/mem_clock"}},
	{metric: "DCGM_FI_DEV_MAX_SM_CLOCK", sources: []string{"csv:clocks.max.sm", "xml:max_clocks/sm_clock"}},
	{metric: "DCGM_FI_DEV_MAX_MEM_CLOCK", sources: []string{"csv:clocks.max.memory", "xml:max_clocks/mem_clock"}},
	{metric: "DCGM_FI_DEV_MAX_VIDEO_CLOCK", sources: []string{"xml:max_clocks/video_clock"}},
	{metric: "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", how: moving, sources: []string{"csv:clocks_event_reasons.active", "csv:clocks_throttle_reasons.active"}},

	{metric: "DCGM_FI_DEV_GPU_TEMP", how: moving, sources: []string{"csv:temperature.gpu", "xml:temperature/gpu_temp"}, abs: 3},
	{metric: "DCGM_FI_DEV_MEMORY_TEMP", how: moving, sources: []string{"csv:temperature.memory", "xml:temperature/memory_temp"}, abs: 3},
	{metric: "DCGM_FI_DEV_GPU_TEMP_LIMIT", how: moving, sources: []string{"csv:temperature.gpu.tlimit", "xml:temperature/gpu_temp_tlimit"}, abs: 3},
	{metric: "DCGM_FI_DEV_SLOWDOWN_TEMP", sources: []string{"xml:temperature/gpu_temp_slow_threshold"}},
	{metric: "DCGM_FI_DEV_SHUTDOWN_TEMP", sources: []string{"xml:temperature/gpu_temp_max_threshold"}},
	{metric: "DCGM_FI_DEV_GPU_MAX_OP_TEMP", sources: []string{"xml:temperature/gpu_temp_max_gpu_threshold"}},
	{metric: "DCGM_FI_DEV_MEM_MAX_OP_TEMP", sources: []string{"xml:temperature/gpu_temp_max_mem_threshold"}},

	{metric: "DCGM_FI_DEV_POWER_USAGE", how: moving, sources: []string{"csv:power.draw.average", "csv:power.draw", "xml:gpu_power_readings/average_power_draw", "xml:gpu_power_readings/power_draw", "xml:power_readings/power_draw"}, abs: 15, rel: 0.1},
	{metric: "DCGM_FI_DEV_POWER_USAGE_INSTANT", how: moving, sources: []string{"csv:power.draw.instant", "xml:gpu_power_readings/instant_power_draw"}, abs: 25, rel: 0.2},
	{metric: "DCGM_FI_DEV_POWER_MGMT_LIMIT", sources: []string{"csv:power.limit", "xml:gpu_power_readings/current_power_limit"}, abs: 0.01},
	{metric: "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", sources: []string{"csv:power.min_limit", "xml:gpu_power_readings/min_power_limit"}, abs: 0.01},
	{metric: "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", sources: []string{"csv:power.max_limit", "xml:gpu_power_readings/max_power_limit"}, abs: 0.01},
	{metric: "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", sources: []string{"csv:power.default_limit", "xml:gpu_power_readings/default_power_limit"}, abs: 0.01},
	{metric: "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", sources: []string{"csv:enforced.power.limit"}, abs: 0.01},
	{metric: "DCGM_FI_DEV_PSTATE", how: moving, sources: []string{"csv:pstate", "xml:performance_state"}},
	{metric: "DCGM_FI_DEV_FAN_SPEED", how: moving, sources: []string{"csv:fan.speed", "xml:fan_speed"}, abs: 5},

	{metric: "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", how: moving, sources: []string{"xml:pci/replay_counter"}},
	{metric: "DCGM_FI_DEV_PCIE_LINK_GEN", how: moving, sources: []string{"csv:pcie.link.gen.gpucurrent", "csv:pcie.link.gen.current", "xml:pci/pci_gpu_link_info/pcie_gen/current_link_gen"}},
	{metric: "DCGM_FI_DEV_PCIE_LINK_WIDTH", how: moving, sources: []string{"csv:pcie.link.width.current"}},
	{metric: "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", sources: []string{"csv:pcie.link.gen.max", "xml:pci/pci_gpu_link_info/pcie_gen/max_link_gen"}},
	{metric: "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", sources: []string{"csv:pcie.link.width.max"}},
	{metric: "DCGM_FI_DEV_GPU_UTIL", how: moving, sources: []string{"csv:utilization.gpu", "xml:utilization/gpu_util"}, abs: 15},
	{metric: "DCGM_FI_DEV_MEM_COPY_UTIL", how: moving, sources: []string{"csv:utilization.memory", "xml:utilization/memory_util"}, abs: 15},
	{metric: "DCGM_FI_DEV_ENC_UTIL", how: moving, sources: []string{"csv:utilization.encoder", "xml:utilization/encoder_util"}, abs: 15},
	{metric: "DCGM_FI_DEV_DEC_UTIL", how: moving, sources: []string{"csv:utilization.decoder", "xml:utilization/decoder_util"}, abs: 15},

	{metric: "DCGM_FI_DEV_FB_TOTAL", sources: []string{"csv:memory.total", "xml:fb_memory_usage/total"}, abs: 1},
	{metric: "DCGM_FI_DEV_FB_RESERVED", sources: []string{"csv:memory.reserved", "xml:fb_memory_usage/reserved"}, abs: 1},
	{metric: "DCGM_FI_DEV_FB_USED", how: moving, sources: []string{"csv:memory.used", "xml:fb_memory_usage/used"}, abs: 64, rel: 0.02},
	{metric: "DCGM_FI_DEV_FB_FREE", how: moving, sources: []string{"csv:memory.free", "xml:fb_memory_usage/free"}, abs: 64, rel: 0.02},

	{metric: "DCGM_FI_DEV_ECC_CURRENT", sources: []string{"csv:ecc.mode.current", "xml:ecc_mode/current_ecc"}},
	{metric: "DCGM_FI_DEV_ECC_PENDING", sources: []string{"csv:ecc.mode.pending", "xml:ecc_mode/pending_ecc"}},
	{metric: "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", how: moving, sources: []string{"csv:ecc.errors.corrected.volatile.total"}},
	{metric: "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", how: moving, sources: []string{"csv:ecc.errors.uncorrected.volatile.total"}},
	{metric: "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", how: moving, sources: []string{"csv:ecc.errors.corrected.aggregate.total"}},
	{metric: "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", how: moving, sources: []string{"csv:ecc.errors.uncorrected.aggregate.total"}},
	{metric: "DCGM_FI_DEV_RETIRED_SBE", sources: []string{"csv:retired_pages.single_bit_ecc.count"}},
	{metric: "DCGM_FI_DEV_RETIRED_DBE", sources: []string{"csv:retired_pages.double_bit.count"}},
	{metric: "DCGM_FI_DEV_RETIRED_PENDING", sources: []string{"csv:retired_pages.pending"}},
	{metric: "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", sources: []string{"csv:remapped_rows.correctable", "xml:remapped_rows/remapped_row_corr"}},
	{metric: "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", sources: []string{"csv:remapped_rows.uncorrectable", "xml:remapped_rows/remapped_row_unc"}},
	{metric: "DCGM_FI_DEV_ROW_REMAP_PENDING", sources: []string{"csv:remapped_rows.pending", "xml:remapped_rows/remapped_row_pending"}},
	{metric: "DCGM_FI_DEV_ROW_REMAP_FAILURE", sources: []string{"csv:remapped_rows.failure", "xml:remapped_rows/remapped_row_failure"}},
	{metric: "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX", sources: []string{"csv:remapped_rows.histogram.max", "xml:remapped_rows/row_remapper_histogram/row_remapper_histogram_max"}},
	{metric: "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH", sources: []string{"csv:remapped_rows.histogram.high", "xml:remapped_rows/row_remapper_histogram/row_remapper_histogram_high"}},
	{metric: "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL", sources: []string{"csv:remapped_rows.histogram.partial", "xml:remapped_rows/row_remapper_histogram/row_remapper_histogram_partial"}},
	{metric: "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW", sources: []string{"csv:remapped_rows.histogram.low", "xml:remapped_rows/row_remapper_histogram/row_remapper_histogram_low"}},
	{metric: "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE", sources: []string{"csv:remapped_rows.histogram.none", "xml:remapped_rows/row_remapper_histogram/row_remapper_histogram_none"}},

	{metric: "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", how: moving, sources: []string{"csv:gpu_recovery_action", "xml:gpu_recovery_action"}},
	{metric: "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", how: moving, sources: []string{"csv:clocks_event_reasons_counters.sw_power_cap", "xml:clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap"}, scale: 1000, abs: 2e9},
	{metric: "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS", how: moving, sources: []string{"csv:clocks_event_reasons_counters.sync_boost", "xml:clocks_event_reasons_counters/clocks_event_reasons_counters_sync_boost"}, scale: 1000, abs: 2e9},
	{metric: "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", how: moving, sources: []string{"csv:clocks_event_reasons_counters.sw_thermal_slowdown", "xml:clocks_event_reasons_counters/clocks_event_reasons_counters_sw_therm_slowdown"}, scale: 1000, abs: 2e9},
	{metric: "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", how: moving, sources: []string{"csv:clocks_event_reasons_counters.hw_thermal_slowdown", "xml:clocks_event_reasons_counters/clocks_event_reasons_counters_hw_therm_slowdown"}, scale: 1000, abs: 2e9},
	{metric: "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", how: moving, sources: []string{"csv:clocks_event_reasons_counters.hw_power_brake_slowdown", "xml:clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake"}, scale: 1000, abs: 2e9},
}

// properties returns the properties to query from nvidia-smi.
func properties() []string {
	out := []string{"index", "uuid", "name", "driver_version"} // the GPU's identity
	for _, c := range checks {
		for _, s := range c.sources {
			if name, ok := strings.CutPrefix(s, "csv:"); ok && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}
