package main

// gpu goes into one GPU: bursts, throttling, links, errors.
func gpu() *builder {
	b := newDashboard("warpgauge-gpu", "GPUs / GPU in depth",
		"One GPU: what happens between two scrapes, what slows it down, its links and errors. Panels stay empty where the list of fields lacks theirs.", instance, gpuIndex)
	b.row("Between two scrapes (etc/recommended-counters.csv)")
	b.heatmap(12, "Utilisation, every sample", "DCGM_FI_DEV_GPU_UTIL_RATIO as type histogram. On NVIDIA's GPUs a sample is a mean over 1/6 s or more: shorter bursts are lower.", "percentunit", buckets("DCGM_FI_DEV_GPU_UTIL_RATIO"))
	b.heatmap(12, "Power, every sample", "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS as type histogram: the power at each tick, no mean.", "watt", buckets("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS"))
	b.lines("Utilisation: mean and quantiles", "", "percentunit",
		query{"mean", mean("DCGM_FI_DEV_GPU_UTIL_RATIO")},
		query{"p50", quantile("0.5", "DCGM_FI_DEV_GPU_UTIL_RATIO")},
		query{"p99", quantile("0.99", "DCGM_FI_DEV_GPU_UTIL_RATIO")})
	b.lines("Time sampled", "The share of time that the histogram of utilisation has samples for.", "percentunit",
		query{deviceLegend, rateByDevice("DCGM_FI_DEV_GPU_UTIL_RATIO_count") + ` / 1000 or max by (instance, gpu, GPU_I_ID, GPU_I_PROFILE) (histogram_count(rate(DCGM_FI_DEV_GPU_UTIL_RATIO` + sel + `[$__rate_interval]))) / 1000`})

	b.legend = "right" // a line for each quantity
	b.row("What the GPU does")
	b.lines("Pipes", "Shares of time. Absent if the board or driver does not measure them.", "percentunit",
		query{"SM " + deviceLegend, byDevice("DCGM_FI_PROF_SM_ACTIVE")},
		query{"tensor " + deviceLegend, byDevice("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")},
		query{"FP64 " + deviceLegend, byDevice("DCGM_FI_PROF_PIPE_FP64_ACTIVE")},
		query{"FP32 " + deviceLegend, byDevice("DCGM_FI_PROF_PIPE_FP32_ACTIVE")},
		query{"FP16 " + deviceLegend, byDevice("DCGM_FI_PROF_PIPE_FP16_ACTIVE")},
		query{"DRAM " + deviceLegend, byDevice("DCGM_FI_PROF_DRAM_ACTIVE")})
	b.lines("Occupancy and engine", "", "percentunit",
		query{"occupancy " + deviceLegend, byDevice("DCGM_FI_PROF_SM_OCCUPANCY")},
		query{"engine " + deviceLegend, byDevice("DCGM_FI_PROF_GR_ENGINE_ACTIVE")})
	b.lines("Video", "", "percent",
		query{"encoder " + deviceLegend, byDevice("DCGM_FI_DEV_ENC_UTIL")}, query{"decoder " + deviceLegend, byDevice("DCGM_FI_DEV_DEC_UTIL")})
	b.lines("Memory", "", "mbytes",
		query{"used " + deviceLegend, byDevice("DCGM_FI_DEV_FB_USED")}, query{"free " + deviceLegend, byDevice("DCGM_FI_DEV_FB_FREE")},
		query{"reserved " + deviceLegend, byDevice("DCGM_FI_DEV_FB_RESERVED")})

	b.row("What slows it down")
	b.lines("Time slowed down", "Share of the time.", "percentunit",
		query{"power " + deviceLegend, rateByDevice("DCGM_FI_DEV_POWER_VIOLATION") + ` / 1e9`},
		query{"heat " + deviceLegend, rateByDevice("DCGM_FI_DEV_THERMAL_VIOLATION") + ` / 1e9`},
		query{"board " + deviceLegend, rateByDevice("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION") + ` / 1e9`},
		query{"reliability " + deviceLegend, rateByDevice("DCGM_FI_DEV_RELIABILITY_VIOLATION") + ` / 1e9`})
	b.lines("Clock events", "Events in the exporter's window, by reason.", "short",
		query{"{{clock_event}} " + deviceLegend, `max by (instance, gpu, clock_event) (DCGM_EXP_CLOCK_EVENTS_COUNT` + sel + `) > 0`})

	b.row("Links")
	b.lines("PCIe", "", "Bps",
		query{"sent " + deviceLegend, byDevice("DCGM_FI_PROF_PCIE_TX_BYTES")}, query{"received " + deviceLegend, byDevice("DCGM_FI_PROF_PCIE_RX_BYTES")})
	b.lines("NVLink", "All links of a GPU.", "MBs", device("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"))
	b.lines("PCIe replays", "", "cps", query{deviceLegend, rateByDevice("DCGM_FI_DEV_PCIE_REPLAY_COUNTER")})
	b.lines("NVLink errors", "", "cps",
		query{"CRC flit " + deviceLegend, rateByDevice("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL")},
		query{"CRC data " + deviceLegend, rateByDevice("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL")},
		query{"replay " + deviceLegend, rateByDevice("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL")},
		query{"recovery " + deviceLegend, rateByDevice("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL")})

	b.row("Errors")
	b.table(12, "Last XID", "", "short", `max by (instance, gpu, GPU_I_ID, err_code, err_msg) (DCGM_FI_DEV_XID_ERRORS`+sel+`)`,
		nodeColumn, gpuColumn, instanceColumn, xidColumn, xidTextColumn)
	b.lines("XIDs in the window", "", "short", query{"XID {{xid}} GPU {{gpu}}", `max by (instance, gpu, xid) (DCGM_EXP_XID_ERRORS_COUNT` + sel + `) > 0`})
	b.lines("Memory rows", "", "short",
		query{"uncorrectable " + deviceLegend, byDevice("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")},
		query{"correctable " + deviceLegend, byDevice("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS")},
		query{"failed " + deviceLegend, byDevice("DCGM_FI_DEV_ROW_REMAP_FAILURE")})
	b.lines("ECC errors", "Since the driver was loaded.", "short",
		query{"single-bit " + deviceLegend, byDevice("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL")}, query{"double-bit " + deviceLegend, byDevice("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")})
	return b
}
