package selfmetrics

import (
	"slices"
	"strings"
)

// lean lists the families that alerts and most dashboards need: at most 60 samples on a healthy node of 8 GPUs, without
// the families of owners, accounts and mappings. Samples make a page expensive, and most of our own metrics only help to debug
// one exporter.
var lean = []string{
	"process_cpu_seconds_total",
	"process_resident_memory_bytes",
	"warpgauge_build_info",
	"warpgauge_collector_problem",
	"warpgauge_collector_restarts_total",
	"warpgauge_collector_up",
	"warpgauge_config_last_reload_success_timestamp_seconds",
	"warpgauge_config_last_reload_successful",
	"warpgauge_device_health",
	"warpgauge_device_owner",
	"warpgauge_device_owners",
	"warpgauge_device_problem",
	"warpgauge_device_state",
	"warpgauge_devices_expected",
	"warpgauge_event_gaps_total",
	"warpgauge_field_absent",
	"warpgauge_field_absent_left_out",
	"warpgauge_gpus_missing",
	"warpgauge_instance_share_ratio",
	"warpgauge_kernel_log_events_total",
	"warpgauge_list_applied_timestamp_seconds",
	"warpgauge_list_info",
	"warpgauge_mapping_age_seconds",
	"warpgauge_mapping_up",
	"warpgauge_owner_busy_seconds_total",
	"warpgauge_owner_energy_joules_total",
	"warpgauge_owner_gpu_seconds_total",
	"warpgauge_owner_idle",
	"warpgauge_owner_memory_byte_seconds_total",
	"warpgauge_owner_memory_peak_bytes",
	"warpgauge_owner_ofu_seconds_total", "warpgauge_owner_pod_events_dropped_total",
	"warpgauge_owner_tensor_seconds_total",
	"warpgauge_owner_throttled_seconds_total",
	"warpgauge_owner_time_seconds_total",
	"warpgauge_owner_unused_seconds",
	"warpgauge_owner_xids_total",
	"warpgauge_owners_dropped_total",
	"warpgauge_remote_config_status",
	"warpgauge_remote_refused_lines",
	"warpgauge_sample_age_seconds",
	"warpgauge_sign_active",
}

// IsLean reports whether the family of that name is in the lean set. Those of jobstats are, because a flag adds them.
func IsLean(name string) bool {
	return slices.Contains(lean, name) || strings.HasPrefix(name, "nvidia_gpu_")
}
