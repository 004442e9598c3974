package main

const (
	ofOwner   = `owner_namespace, owner_pod, hpc_job`
	ofAccount = `owner, pod_uid, owner_container, ` + ofOwner
	everyone  = `{cluster=~"$cluster", job=~"$job"`
	ofOwners  = everyone + `, owner=~"pod|job", owner_namespace=~"$namespace"`
)

// accounts returns the dashboard about what owners have used.
func accounts() *builder {
	const (
		energy = `warpgauge_owner_energy_joules_total`
		held   = `warpgauge_owner_gpu_seconds_total` + ofOwners + `}`
		spent  = `warpgauge_owner_time_seconds_total` + ofOwners
		by     = ` by (` + ofOwner + `) `
		idle   = `max by (cluster, instance, gpu, UUID, ` + ofAccount + `, reason) (warpgauge_owner_idle` + ofOwners + `})`
		none   = "Needs --accounts of the exporter, and --kubernetes or --hpc-job-mapping-dir."
	)
	namespace := choice("namespace", "Namespace", "owner_namespace", `warpgauge_owner_gpu_seconds_total`+everyone+`}`)
	b := newDashboard("warpgauge-accounts", "GPUs / Accounts", "What pods and jobs have used in the chosen time, from the counters of --accounts. docs/accounts.md says how it is counted.", namespace, rateStep)
	b.d.Time["from"] = "now-24h"
	perHour := func(series, by string) string { return `sum` + by + `(` + used(series, "") + `) / 3600` }
	rates := func(series, more string) string {
		return onePerBoard(rateBy(`cluster, job, instance, UUID, `+ofAccount+`, source, method, state, activity`, series), more)
	}
	table := func(w int, title, description, unit, expr string, columns ...column) *panel {
		return b.table(w, title, description, unit, expr, append([]column{{"owner_namespace", "Namespace", 0}, {"owner_pod", "Pod", 0}, {"hpc_job", "Job", 80}}, columns...)...)
	}
	most := func(title, description, unit, series, what string) *panel {
		return table(12, title, description+"The first 50.", unit, `topk(50, `+perHour(series, by)+` > 0)`, value(what))
	}

	b.row("In all")
	b.stat(4, "Energy of owners", "Of all pods and jobs.", "watth", perHour(energy+ofOwners+`}`, "")).empty(none)
	b.stat(4, "of it idle", "Used while nothing ran in the owner's part of the GPU.", "watth", perHour(energy+ofOwners+`, state="idle"}`, "")).empty(none)
	b.stat(4, "Energy without owner", "Of GPUs that no pod and no job has, and where it is not known who has them.", "watth", perHour(energy+everyone+`, owner=~"nobody|unattributed"}`, "")).empty(none)
	b.stat(4, "GPU-hours", "That owners had. A part of a GPU counts as the part that it is.", "short", perHour(held, "")).empty(none)
	b.stat(4, "of them idle", "No kernel ran.", "short", perHour(spent+`, activity="idle"}`, "")).empty(none)
	b.stat(4, "Idle allocations", "GPUs that an owner holds now, without use for --account-idle-after.", "short", `count(`+onePerBoard(`warpgauge_owner_idle`+ofOwners+`}`, "")+`) or vector(0)`, from(1, "yellow"))

	b.row("Who used what")
	most("Most energy", "", "watth", energy+ofOwners+`}`, "Energy").empty(none)
	most("Most GPU-hours", "", "short", held, "GPU-hours").empty(none)
	b.lines("Energy in the last hour by namespace", "", "watth", query{"{{namespace}}", `sum by (namespace) (namespace:gpu_energy:joules1h{cluster=~"$cluster", namespace=~"$namespace"}) / 3600`}).empty(needsRules)
	b.lines("Energy in the last hour by job", "", "watth", query{"job {{hpc_job}}", `sum by (hpc_job) (hpc_job:gpu_energy:joules1h{cluster=~"$cluster"}) / 3600`}).empty(needsRules)
	b.stacked("Power by kind of owner", "Together the power of all boards. unattributed: the exporter does not know who has the GPU.", "watt",
		query{"{{owner}}", `sum by (owner) (` + rates(energy+everyone+`}`, "") + `)`}).empty(none)
	b.stacked("Power by method", "How the owner's part of a GPU was found. whole: it had the GPU alone; activity: by that of its processes or instances; slices, equal: an estimate.", "watt",
		query{"{{method}}, from {{source}}", `sum by (method, source) (` + rates(energy+ofOwners+`}`, ", method, source") + `)`}).empty(none)

	b.row("Idle")
	table(24, "Idle allocations", "no_process: no process of the owner is on the GPU; process: one is there and does nothing.", "s",
		idle+` * on (cluster, instance, UUID, `+ofAccount+`) group_left () max by (cluster, instance, UUID, `+ofAccount+`) (warpgauge_owner_unused_seconds`+ofOwners+`})`,
		nodeColumn, gpuColumn, column{"reason", "Reason", 100}, value("Unused for")).empty("No owner holds a GPU without use.")
	most("Idle energy", "Used while nothing ran in the owner's part. ", "watth", energy+ofOwners+`, state="idle"}`, "Energy").empty("No owner was idle.")
	most("Idle GPU-hours", "", "short", spent+`, activity="idle"}`, "GPU-hours").empty("No owner was idle.")

	b.row("Efficiency")
	share := func(title, description, part, whole string) *panel {
		return table(8, title, description, "percentunit", `sum`+by+`(`+used(part+ofOwners+`}`, "")+`) / sum`+by+`(`+used(whole, "")+` > 0)`, value(title))
	}
	share("Busy", "Part of the time, as far as it is known, in which a kernel ran.", `warpgauge_owner_busy_seconds_total`, spent+`, activity!="unknown"}`).empty(none)
	share("Tensor cores", "Mean activity over the time of the owner.", `warpgauge_owner_tensor_seconds_total`, held).empty(noProfiling)
	share("OFU", "Mean of tensor activity times clock over its peak, of the same sample: the part of the peak throughput.", `warpgauge_owner_ofu_seconds_total`, held).
		empty("These GPUs do not measure it, their peak clock is not known, or the list lacks it.")
	b.stacked("What the time was spent on", "Shares of all GPU time of owners.", "percentunit",
		query{"{{activity}}", `sum by (activity) (` + rates(spent+`}`, ", activity") + `) / on () group_left () (sum(` + rates(spent+`}`, ", activity") + `) > 0)`}).empty(none)
	table(12, "What each owner's time was spent on", "Shares that add up to one.", "percentunit", `sum by (`+ofOwner+`, activity) (`+used(spent+`}`, ", activity")+`) / on (`+ofOwner+`) group_left () sum`+by+`(`+
		used(spent+`}`, ", activity")+` > 0) > 0.0001`, column{"activity", "Activity", 0}, value("Share")).empty(none)
	table(24, "Peak memory", "Most memory in use at a time, of each GPU.", "bytes", `max by (cluster, instance, gpu, UUID, `+ofOwner+`, owner_container) (max_over_time(warpgauge_owner_memory_peak_bytes`+ofOwners+`}[$__range]))`,
		column{"owner_container", "Container", 0}, nodeColumn, gpuColumn, value("Memory")).empty(none)
	return b
}

// used returns by how much counters of accounts have grown in the dashboard's range, one series for each board and account, with
// more labels. increase would lose what an owner had used by the first scrape that found it: all of a short job. So it is the largest
// value in the range, less the largest in the hour before it, or nothing if the owner has come since.
func used(series, more string) string {
	largest := func(over string) string {
		return `max by (cluster, job, instance, UUID, ` + ofAccount + `, source, method, state, activity) (max_over_time(` + series + over + `))`
	}
	return onePerBoard(`clamp_min(`+largest(`[$__range]`)+` - (`+largest(`[1h] offset $__range`)+` or `+largest(`[$__range]`)+` * 0), 0)`, more)
}

// onePerBoard returns one series for each board and account, with more labels. Of two exporters that report a board the larger sum
// counts. A UUID identifies a board; where a PCI address is in its place, that and the node do.
func onePerBoard(series, more string) string {
	return `max by (cluster, node, UUID, ` + ofAccount + more + `) (label_replace(label_replace(sum by (cluster, job, instance, UUID, ` + ofAccount + more + `) (` + series +
		`), "node", "$1", "instance", "(.*)"), "node", "", "UUID", "[^:]+"))`
}
