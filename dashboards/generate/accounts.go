package main

import "strings"

// Labels of an account, and of its owner.
const (
	ofAccount = `owner, owner_namespace, owner_pod, pod_uid, owner_container, hpc_job`
	ofOwner   = `owner_namespace, owner_pod, hpc_job`
)

// Selectors of all accounts, and of those of pods and jobs.
const (
	allAccounts = `{cluster=~"$cluster", job=~"$job"}`
	owned       = `{cluster=~"$cluster", job=~"$job", owner=~"pod|job", owner_namespace=~"$namespace"}`
)

// accounts returns the dashboard about what owners have used.
func accounts() *builder {
	namespace := choice("namespace", "Namespace", "owner_namespace", `warpgauge_owner_gpu_seconds_total{cluster=~"$cluster", job=~"$job"}`)
	const (
		energy = `warpgauge_owner_energy_joules_total`
		held   = `warpgauge_owner_gpu_seconds_total`
		spent  = `warpgauge_owner_time_seconds_total`
		none   = "Needs --accounts of the exporter, and --kubernetes or --hpc-job-mapping-dir."
	)
	b := newDashboard("warpgauge-accounts", "GPUs / Accounts", "What pods and jobs have used in the chosen time, from the counters of --accounts. docs/accounts.md says how it is counted.", namespace, rateStep)
	b.d.Time.From = "now-24h"
	owners := []column{{"owner_namespace", "Namespace", 0}, {"owner_pod", "Pod", 0}, {"hpc_job", "Job", 80}}
	wattHours := func(series, by string) string { return `sum` + by + `(` + used(series, "") + `) / 3600` }
	hours := func(series string) string { return `sum(` + used(series, "") + `) / 3600` }

	b.row("In all")
	b.stat(4, "Energy of owners", "Of all pods and jobs.", "watth", wattHours(energy+owned, "")).empty(none)
	b.stat(4, "of it idle", "Used while nothing ran in the owner's part of the GPU.", "watth", wattHours(energy+withLabel(owned, `state="idle"`), "")).empty(none)
	b.stat(4, "Energy without owner", "Of GPUs that no pod and no job has, and where it is not known who has them.", "watth", wattHours(energy+withLabel(allAccounts, `owner=~"nobody|unattributed"`), "")).empty(none)
	b.stat(4, "GPU-hours", "That owners had. A part of a GPU counts as the part that it is.", "short", hours(held+owned)).empty(none)
	b.stat(4, "of them idle", "No kernel ran.", "short", hours(spent+withLabel(owned, `activity="idle"`))).empty(none)
	b.stat(4, "Idle allocations", "GPUs that an owner holds now, without use for --account-idle-after.", "short", `count(`+onePerBoard(`warpgauge_owner_idle`+owned, "")+`) or vector(0)`, from(1, "yellow"))

	b.row("Who used what")
	b.table(12, "Most energy", "The first 50.", "watth", `topk(50, `+wattHours(energy+owned, ` by (`+ofOwner+`) `)+`)`, append(owners, value("Energy"))...).empty(none)
	b.table(12, "Most GPU-hours", "The first 50.", "short", `topk(50, sum by (`+ofOwner+`) (`+used(held+owned, "")+`) / 3600)`, append(owners, value("GPU-hours"))...).empty(none)
	b.lines("Energy in the last hour by namespace", "", "watth",
		query{"{{namespace}}", `sum by (namespace) (namespace:gpu_energy:joules1h{cluster=~"$cluster", namespace=~"$namespace"}) / 3600`}).empty(needsRules)
	b.lines("Energy in the last hour by job", "", "watth",
		query{"job {{hpc_job}}", `sum by (hpc_job) (hpc_job:gpu_energy:joules1h{cluster=~"$cluster"}) / 3600`}).empty(needsRules)
	b.stacked("Power by kind of owner", "Together the power of all boards. unattributed: the exporter does not know who has the GPU.", "watt",
		query{"{{owner}}", `sum by (owner) (` + onePerBoard(rateBy(`cluster, job, instance, UUID, `+ofAccount+`, source, method, state`, energy+allAccounts), "") + `)`}).empty(none)
	b.stacked("Power by method", "How the owner's part of a GPU was found. whole: it had the GPU alone; activity: by that of its processes or instances; slices, equal: an estimate.", "watt",
		query{"{{method}}, from {{source}}", `sum by (method, source) (` + onePerBoard(rateBy(`cluster, job, instance, UUID, `+ofAccount+`, source, method, state`, energy+owned), ", method, source") + `)`}).empty(none)

	b.row("Idle")
	b.table(24, "Idle allocations", "no_process: no process of the owner is on the GPU; process: one is there and does nothing.", "s",
		idle+` * on (cluster, instance, UUID, `+ofAccount+`) group_left () max by (cluster, instance, UUID, `+ofAccount+`) (warpgauge_owner_unused_seconds`+owned+`)`,
		append(owners, nodeColumn, gpuColumn, column{"reason", "Reason", 100}, value("Unused for"))...).empty("No owner holds a GPU without use.")
	b.table(12, "Idle energy", "Used while nothing ran in the owner's part. The first 50.", "watth",
		`topk(50, `+wattHours(energy+withLabel(owned, `state="idle"`), ` by (`+ofOwner+`) `)+` > 0)`, append(owners, value("Energy"))...).empty("No owner was idle.")
	b.table(12, "Idle GPU-hours", "The first 50.", "short",
		`topk(50, sum by (`+ofOwner+`) (`+used(spent+withLabel(owned, `activity="idle"`), "")+`) / 3600 > 0)`, append(owners, value("GPU-hours"))...).empty("No owner was idle.")

	b.row("Efficiency")
	share := func(part, whole string) string {
		return `sum by (` + ofOwner + `) (` + used(part, "") + `) / sum by (` + ofOwner + `) (` + used(whole, "") + ` > 0)`
	}
	known := spent + withLabel(owned, `activity!="unknown"`)
	b.table(8, "Busy", "Part of the time, as far as it is known, in which a kernel ran.", "percentunit", share(`warpgauge_owner_busy_seconds_total`+owned, known), append(owners, value("Busy"))...).empty(none)
	b.table(8, "Tensor cores", "Mean activity over the time of the owner.", "percentunit", share(`warpgauge_owner_tensor_seconds_total`+owned, held+owned), append(owners, value("Tensor"))...).empty(noProfiling)
	b.table(8, "OFU", "Mean of tensor activity times clock over its peak, of the same sample: the part of the peak throughput.", "percentunit",
		share(`warpgauge_owner_ofu_seconds_total`+owned, held+owned), append(owners, value("OFU"))...).empty("These GPUs do not measure it, their peak clock is not known, or the list lacks it.")
	b.stacked("What the time was spent on", "Shares of all GPU time of owners.", "percentunit",
		query{"{{activity}}", spentShares}).empty(none)
	b.table(12, "What each owner's time was spent on", "Shares that add up to one.", "percentunit",
		`sum by (`+ofOwner+`, activity) (`+used(spent+owned, ", activity")+`) / on (`+ofOwner+`) group_left () sum by (`+ofOwner+`) (`+used(spent+owned, ", activity")+` > 0) > 0.0001`,
		append(owners, column{"activity", "Activity", 0}, value("Share"))...).empty(none)
	b.table(24, "Peak memory", "Most memory in use at a time, of each GPU.", "bytes",
		`max by (cluster, instance, gpu, UUID, `+ofOwner+`, owner_container) (max_over_time(warpgauge_owner_memory_peak_bytes`+owned+`[$__range]))`,
		append(owners, column{"owner_container", "Container", 0}, nodeColumn, gpuColumn, value("Memory"))...).empty(none)
	return b
}

// idle is 1 for each idle allocation.
const idle = `max by (cluster, instance, gpu, UUID, ` + ofAccount + `, reason) (warpgauge_owner_idle` + owned + `)`

var spentShares = func() string {
	rate := onePerBoard(rateBy(`cluster, job, instance, UUID, `+ofAccount+`, activity`, `warpgauge_owner_time_seconds_total`+owned), ", activity")
	return `sum by (activity) (` + rate + `) / on () group_left () (sum(` + rate + `) > 0)`
}()

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

// withLabel adds a matcher to a selector.
func withLabel(selector, matcher string) string {
	return strings.TrimSuffix(selector, "}") + ", " + matcher + "}"
}
