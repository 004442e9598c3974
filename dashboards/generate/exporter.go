package main

// exporter is how warpgauge itself does.
func exporter() *builder {
	up := choice("instance", "Node", "instance", `warpgauge_build_info`)
	const sel = `{instance=~"$instance"}`
	b := newDashboard("warpgauge-exporter", "GPUs / Exporter", "How the exporters themselves do.", up)
	b.row("Now")
	b.stat(4, "Exporters", "", "short", `count(warpgauge_build_info`+sel+`)`)
	b.stat(4, "Collectors not in use", "A machine without AMD's GPUs has no ROCm: look at the reasons.", "short", `count(warpgauge_collector_up`+sel+` == 0) or vector(0)`)
	b.stat(4, "Devices not up", "", "short", `count(warpgauge_device_state{state=~"stalled|lost|absent", instance=~"$instance"}) or vector(0)`, from(1, "red"))
	b.stat(4, "Mappings that fail", "", "short", `count(warpgauge_mapping_up`+sel+` == 0) or vector(0)`, from(1, "orange"))
	b.stat(4, "Bad field lists", "", "short", `count(warpgauge_config_last_reload_successful`+sel+` == 0) or vector(0)`, from(1, "orange"))
	b.stat(4, "Versions", "", "short", `count(count by (version) (warpgauge_build_info`+sel+`))`)

	b.row("Scrapes")
	b.lines("Duration of a scrape, p99", "From the handler's start to the network. With --exporter-metrics=full.", "s",
		query{"{{instance}}", `histogram_quantile(0.99, sum by (instance, le) (rate(warpgauge_scrape_duration_seconds_bucket` + sel + `[$__rate_interval])))`})
	b.lines("Page size", "With --exporter-metrics=full.", "bytes", query{"{{instance}} {{format}} {{encoding}}", `warpgauge_exposition_page_bytes` + sel})
	b.lines("Requests by code", "With --exporter-metrics=full.", "reqps", query{"{{code}} {{path}}", `sum by (code, path) (rate(warpgauge_http_requests_total` + sel + `[$__rate_interval])) > 0`})
	b.lines("Series", "With --exporter-metrics=full.", "short", query{"{{instance}}", `warpgauge_exposition_series` + sel})

	b.row("Sampling")
	b.lines("Time in the vendor library per sample, p99", "With --exporter-metrics=full.", "s",
		query{"{{collector}}", `histogram_quantile(0.99, sum by (collector, le) (rate(warpgauge_sample_duration_seconds_bucket` + sel + `[$__rate_interval])))`})
	b.lines("Age of samples", "The oldest of each node.", "s", query{"{{instance}}", `max by (instance) (warpgauge_sample_age_seconds` + sel + `)`})
	b.lines("Errors", "With --exporter-metrics=full.", "cps",
		query{"samples {{instance}} {{collector}}", `sum by (instance, collector) (rate(warpgauge_sample_errors_total` + sel + `[$__rate_interval]))`},
		query{"missed ticks {{instance}} {{collector}}", `sum by (instance, collector) (rate(warpgauge_missed_ticks_total` + sel + `[$__rate_interval]))`},
		query{"overruns {{instance}}", `rate(warpgauge_ring_overruns_total` + sel + `[$__rate_interval])`})
	b.lines("Values out of range", "Dropped, not shown. With --exporter-metrics=full.", "cps",
		query{"{{field}}", `sum by (field) (rate(warpgauge_implausible_values_total` + sel + `[$__rate_interval])) > 0`})
	b.table(24, "Collectors that are not in use, and why", "", "short", `warpgauge_collector_problem`+sel+` == 1`, nodeColumn, column{"collector", "Collector", 0}, column{"cause", "Cause", 0})

	b.row("Cost")
	b.lines("CPU", "The exporter; with --exporter-metrics=full also the children that hold vendor libraries.", "percentunit",
		query{"exporter {{instance}}", `rate(process_cpu_seconds_total` + sel + `[$__rate_interval]) and on (instance) warpgauge_build_info`},
		query{"{{collector}} {{instance}}", `rate(warpgauge_collector_child_cpu_seconds_total` + sel + `[$__rate_interval])`})
	b.lines("Memory", "With --exporter-metrics=full also of the children that hold vendor libraries.", "bytes",
		query{"exporter {{instance}}", `process_resident_memory_bytes` + sel + ` and on (instance) warpgauge_build_info`},
		query{"{{collector}} {{instance}}", `warpgauge_collector_child_resident_bytes` + sel})
	b.lines("Children replaced", "With --exporter-metrics=full.", "short", query{"{{collector}}: {{reason}}", `sum by (collector, reason) (increase(warpgauge_collector_child_ends_total` + sel + `[$__rate_interval])) > 0`})

	b.row("Who uses what")
	b.lines("Age of mappings", "", "s", query{"{{instance}} {{mapping}}", `warpgauge_mapping_age_seconds` + sel})
	b.lines("Errors of mappings", "With --exporter-metrics=full.", "cps", query{"{{mapping}}: {{reason}}", `sum by (mapping, reason) (rate(warpgauge_mapping_errors_total` + sel + `[$__rate_interval])) > 0`})
	return b
}
