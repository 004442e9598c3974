package rocm

import (
	"fmt"

	gm "warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
)

// memberNames are the members of gpu_metrics as the kernel's header calls them.
func memberNames() map[gm.Field]string {
	return map[gm.Field]string{
		gm.TemperatureEdge: "temperature_edge", gm.TemperatureHotspot: "temperature_hotspot", gm.TemperatureMem: "temperature_mem",
		gm.TemperatureVRGfx: "temperature_vrgfx", gm.TemperatureVRSoc: "temperature_vrsoc", gm.TemperatureVRMem: "temperature_vrmem",
		gm.TemperatureHBM: "temperature_hbm", gm.TemperatureGfx: "temperature_gfx", gm.TemperatureSoc: "temperature_soc",
		gm.AverageGfxActivity: "average_gfx_activity", gm.AverageUmcActivity: "average_umc_activity", gm.AverageMMActivity: "average_mm_activity",
		gm.VCNActivity: "vcn_activity", gm.JPEGActivity: "jpeg_activity",
		gm.AverageSocketPower: "average_socket_power", gm.CurrentSocketPower: "curr_socket_power", gm.EnergyAccumulator: "energy_accumulator",
		gm.GfxActivityAcc: "gfx_activity_acc", gm.MemActivityAcc: "mem_activity_acc",
		gm.CurrentGfxclk: "current_gfxclk", gm.CurrentSocclk: "current_socclk", gm.CurrentUclk: "current_uclk", gm.CurrentFclk: "current_fclk",
		gm.CurrentVclk0: "current_vclk0", gm.CurrentDclk0: "current_dclk0", gm.IndepThrottleStatus: "indep_throttle_status",
		gm.FanSpeed: "current_fan_speed", gm.VoltageSoc: "voltage_soc", gm.VoltageGfx: "voltage_gfx", gm.VoltageMem: "voltage_mem",
		gm.PCIeLinkWidth: "pcie_link_width", gm.PCIeLinkSpeed: "pcie_link_speed", gm.XGMILinkWidth: "xgmi_link_width", gm.XGMILinkSpeed: "xgmi_link_speed",
		gm.PCIeBandwidthInst: "pcie_bandwidth_inst", gm.PCIeL0ToRecovery: "pcie_l0_to_recov_count_acc", gm.PCIeReplay: "pcie_replay_count_acc",
		gm.PCIeReplayRover: "pcie_replay_rover_count_acc", gm.PCIeNAKSent: "pcie_nak_sent_count_acc", gm.PCIeNAKReceived: "pcie_nak_rcvd_count_acc",
		gm.XGMIReadAcc: "xgmi_read_data_acc", gm.XGMIWriteAcc: "xgmi_write_data_acc", gm.XGMILinkStatus: "xgmi_link_status",
		gm.AccumulationCounter: "accumulation_counter", gm.ProchotResidency: "prochot_residency_acc", gm.PPTResidency: "ppt_residency_acc",
		gm.SocketThmResidency: "socket_thm_residency_acc", gm.VRThmResidency: "vr_thm_residency_acc", gm.HBMThmResidency: "hbm_thm_residency_acc",
		gm.XCPGfxBusy: "xcp_stats.gfx_busy_inst", gm.XCPJPEGBusy: "xcp_stats.jpeg_busy", gm.XCPVCNBusy: "xcp_stats.vcn_busy",
		gm.XCPGfxBusyAcc: "xcp_stats.gfx_busy_acc", gm.XCPBelowHostLimit: "xcp_stats.gfx_below_host_limit_acc",
		gm.XCPBelowLimitPPT: "xcp_stats.gfx_below_host_limit_ppt_acc", gm.XCPBelowLimitThm: "xcp_stats.gfx_below_host_limit_thm_acc",
		gm.XCPLowUtilization: "xcp_stats.gfx_low_utilization_acc", gm.XCPBelowLimitTotal: "xcp_stats.gfx_below_host_limit_total_acc",
		gm.ResidencyProchot: "throttle_residency_prochot", gm.ResidencySPL: "throttle_residency_spl", gm.ResidencyFPPT: "throttle_residency_fppt",
		gm.ResidencySPPT: "throttle_residency_sppt", gm.ResidencyThmCore: "throttle_residency_thm_core",
		gm.ResidencyThmGfx: "throttle_residency_thm_gfx", gm.ResidencyThmSoc: "throttle_residency_thm_soc",
	}
}

// fileOf is where /sys has a reading, below the GPU's directory unless it begins
// with kfd/.
func fileOf(r raw.Reading) string {
	clock := [...]string{"sclk", "mclk", "fclk", "socclk", "vclk", "dclk"}
	memory := [...]string{"vram", "vis_vram", "gtt"}
	sensor := [...]string{"edge", "junction", "mem"}
	hwmon := func(suffix string) string { return fmt.Sprintf("hwmon temp*%s (label %s)", suffix, sensor[r.Index]) }
	switch r.Kind {
	case raw.Clock:
		return "pp_dpm_" + clock[r.Index] + ", line with *"
	case raw.ClockMax:
		return "pp_dpm_" + clock[r.Index] + ", highest line"
	case raw.Temperature:
		return hwmon("_input")
	case raw.TemperatureCrit:
		return hwmon("_crit")
	case raw.TemperatureStop:
		return hwmon("_emergency")
	case raw.MemoryTotal:
		return "mem_info_" + memory[r.Index] + "_total"
	case raw.MemoryUsed:
		return "mem_info_" + memory[r.Index] + "_used"
	case raw.Correctable:
		return "ras/*_err_count, ce"
	case raw.Uncorrectable:
		return "ras/*_err_count, ue"
	case raw.Deferred:
		return "ras/*_err_count, de"
	case raw.BadPages:
		return "ras/gpu_vram_bad_pages, " + [...]string{"R", "P", "F"}[r.Index]
	default:
		return plainFile(r.Kind)
	}
}

func plainFile(k raw.Kind) string {
	return map[raw.Kind]string{
		raw.Busy: "gpu_busy_percent", raw.MemoryBusy: "mem_busy_percent",
		raw.PowerAverage: "hwmon power1_average", raw.PowerInput: "hwmon power1_input", raw.PowerCap: "hwmon power1_cap",
		raw.PowerCapMin: "hwmon power1_cap_min", raw.PowerCapMax: "hwmon power1_cap_max", raw.PowerCapDefault: "hwmon power1_cap_default",
		raw.Voltage: "hwmon in0_input", raw.FanRPM: "hwmon fan1_input", raw.FanDuty: "hwmon pwm1", raw.Replays: "pcie_replay_count",
		raw.LinkSpeed: "current_link_speed", raw.LinkWidth: "current_link_width", raw.LinkSpeedMax: "max_link_speed", raw.LinkWidthMax: "max_link_width",
		raw.Processes: "kfd/proc/*: those with vram_ID, queues or waves", raw.ProcessMemory: "kfd/proc/*/vram_ID, sum",
		raw.ProcessUnits: "kfd/proc/*/stats_ID/cu_occupancy, sum", raw.InstanceTotal: "kfd/topology/nodes/*/mem_banks",
	}[k]
}
