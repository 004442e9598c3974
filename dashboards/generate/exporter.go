package main

// exporter returns the dashboard about warpgauge itself.
func exporter() *builder {
	up := choice("instance", "Node", "instance", `warpgauge_build_info{cluster=~"$cluster", job=~"$job"}`)
	const (
		sel = `{` + ofNodes + `}`
		// witness always exists with --exporter-metrics=full.
		witness = `warpgauge_exposition_series` + sel
		full    = "Needs --exporter-metrics=full."
	)
	b := newDashboard("warpgauge-exporter", "GPUs / Exporter", "How the exporters themselves do.", up)
	b.annotate(ofNodes)
	b.row("Now")
	b.stat(4, "Exporters", "", "short", `count(warpgauge_build_info`+sel+`)`)
	b.stat(4, "Collectors not in use", "A machine without AMD's GPUs has no ROCm: look at the reasons.", "short", `count(warpgauge_collector_up`+sel+` == 0) or vector(0)`)
	b.stat(4, "Devices not up", "", "short", `count(warpgauge_device_state{state=~"stalled|lost|absent", `+ofNodes+`}) or vector(0)`, from(1, "red"))
	b.stat(4, "Mappings that fail", "", "short", `count(warpgauge_mapping_up`+sel+` == 0) or vector(0)`, from(1, "orange"))
	b.stat(4, "Bad field lists", "", "short", `count(warpgauge_config_last_reload_successful`+sel+` == 0) or vector(0)`, from(1, "orange"))
	b.stat(4, "Versions", "", "short", `count(count by (version) (warpgauge_build_info`+sel+`))`)

	b.row("Scrapes")
	b.lines("Duration of a scrape, p99", "From the handler's start to the network.", "s",
		query{"{{instance}}", `histogram_quantile(0.99, sum by (cluster, job, instance, le) (rate(warpgauge_scrape_duration_seconds_bucket` + sel + `[$__rate_interval])))`}).empty(full)
	b.lines("Page size", "", "bytes", query{"{{instance}} {{format}} {{encoding}}", `warpgauge_exposition_page_bytes` + sel}).empty(full)
	b.lines("Requests by code", "", "reqps", query{"{{code}} {{path}}", `sum by (code, path) (rate(warpgauge_http_requests_total` + sel + `[$__rate_interval])) > 0`}).empty(full)
	b.lines("Series", "", "short", query{"{{instance}}", `warpgauge_exposition_series` + sel}).empty(full)

	b.row("Sampling")
	b.lines("Time in the vendor library per sample, p99", "", "s",
		query{"{{collector}}", `histogram_quantile(0.99, sum by (collector, le) (rate(warpgauge_sample_duration_seconds_bucket` + sel + `[$__rate_interval])))`}).empty(full)
	b.lines("Age of samples", "The oldest of each node.", "s", query{"{{instance}}", `max by (cluster, job, instance) (warpgauge_sample_age_seconds` + sel + `)`}).limits(from(60, "red"))
	b.lines("Errors", "", "cps",
		query{"samples {{instance}} {{collector}}", `sum by (cluster, job, instance, collector) (rate(warpgauge_sample_errors_total` + sel + `[$__rate_interval]))`},
		query{"missed ticks {{instance}} {{collector}}", `sum by (cluster, job, instance, collector) (rate(warpgauge_missed_ticks_total` + sel + `[$__rate_interval]))`},
		query{"overruns {{instance}}", `rate(warpgauge_ring_overruns_total` + sel + `[$__rate_interval])`}).empty(full)
	b.lines("Values out of range", "Dropped, not shown.", "cps",
		query{"{{field}}", orNone(`sum by (field) (rate(warpgauge_implausible_values_total`+sel+`[$__rate_interval]))`, "field", witness)}).empty(full)
	b.table(24, "Collectors that are not in use, and why", "", "short", `warpgauge_collector_problem`+sel+` == 1`, nodeColumn, column{"collector", "Collector", 0}, column{"cause", "Cause", 0}).empty("All collectors are in use.")

	b.row("Cost")
	b.lines("CPU", "The exporter; with --exporter-metrics=full also the children that hold vendor libraries.", "percentunit",
		query{"exporter {{instance}}", `rate(process_cpu_seconds_total` + sel + `[$__rate_interval]) and on (cluster, job, instance) warpgauge_build_info`},
		query{"{{collector}} {{instance}}", `rate(warpgauge_collector_child_cpu_seconds_total` + sel + `[$__rate_interval])`})
	b.lines("Memory", "With --exporter-metrics=full also of the children that hold vendor libraries.", "bytes",
		query{"exporter {{instance}}", `process_resident_memory_bytes` + sel + ` and on (cluster, job, instance) warpgauge_build_info`},
		query{"{{collector}} {{instance}}", `warpgauge_collector_child_resident_bytes` + sel})
	b.lines("Children replaced", "Processes that hold vendor libraries.", "short",
		query{"{{collector}} {{reason}}", orNone(`sum by (collector, reason) (increase(warpgauge_collector_child_ends_total`+sel+`[$__rate_interval]))`, "reason", witness)}).empty(full)

	b.row("Who uses what")
	b.lines("Age of mappings", "", "s", query{"{{instance}} {{mapping}}", `warpgauge_mapping_age_seconds` + sel}).limits(from(600, "red")).empty("No mapping is in use.")
	b.lines("Errors of mappings", "", "cps",
		query{"{{mapping}} {{reason}}", orNone(`sum by (mapping, reason) (rate(warpgauge_mapping_errors_total`+sel+`[$__rate_interval]))`, "reason", witness)}).empty(full)
	return b
}
