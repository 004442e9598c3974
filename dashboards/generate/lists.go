package main

// lists returns the dashboard about field lists: which node runs which list, and the work of warpgauge-fleet.
func lists() *builder {
	b := newDashboard("warpgauge-lists", "GPUs / Lists", "Which node runs which list of fields, and how rollouts of warpgauge-fleet go.")
	const (
		nodes  = `{cluster=~"$cluster", job=~"$job"}`
		server = `{cluster=~"$cluster"}` // the fleet server has its own job label
		fleet  = "Needs a target warpgauge-fleet."
	)
	b.row("Now")
	b.stat(4, "Nodes", "", "short", `count(warpgauge_list_info`+nodes+`)`)
	b.stat(4, "Lists in service", "", "short", `count(count by (hash) (warpgauge_list_info`+nodes+`))`)
	b.stat(4, "Nodes with another list", "Than the one that most have.", "short",
		`count(warpgauge_list_info`+nodes+` unless on (hash) topk(1, count by (hash) (warpgauge_list_info`+nodes+`))) or vector(0)`, from(1, "yellow"))
	b.stat(4, "Refused", "Nodes that do not take the list of their server.", "short",
		`count(warpgauge_remote_config_status{cluster=~"$cluster", job=~"$job", status=~"refused|failed"} == 1) or vector(0)`, from(1, "orange"))
	b.stat(4, "Without server", "Nodes that cannot reach it. They keep the last good list.", "short",
		`count(warpgauge_remote_config_status{cluster=~"$cluster", job=~"$job", status="unreachable"} == 1) or vector(0)`, from(1, "orange"))
	b.stat(4, "Silent", "Agents that warpgauge-fleet has not heard of for minutes, nodes that were taken away included.", "short",
		`sum(warpgauge_fleet_agents{cluster=~"$cluster", condition="silent"}) or vector(0)`)

	b.row("Rollouts")
	cohort := column{"cohort", "Cohort", 0}
	b.table(12, "The last rollout of each cohort", "", "short", `warpgauge_fleet_rollout_state`+server+` == 1`, cohort, column{"state", "State", 0}).empty(fleet)
	b.lines("Agents of a rollout", "Of its stages so far.", "short", query{"{{cohort}} {{condition}}", `warpgauge_fleet_rollout_agents` + server}).empty(fleet)
	b.lines("Stage", "", "short", query{"{{cohort}}", `warpgauge_fleet_rollout_stage` + server}).empty(fleet)
	b.stacked("Agents", "", "short", query{"{{cohort}} {{condition}}", `warpgauge_fleet_agents` + server}).empty(fleet)

	b.row("Nodes")
	b.stacked("Nodes by list", "", "short", query{"{{hash}}", `count by (hash) (warpgauge_list_info` + nodes + `)`})
	b.stacked("Nodes by what became of the server's list", "", "short", query{"{{status}}", `count by (status) (warpgauge_remote_config_status` + nodes + ` == 1)`}).empty("No node takes its list from a server.")
	b.table(24, "Which node runs which list", "", "short", `warpgauge_list_info`+nodes, nodeColumn, column{"origin", "Origin", 0}, column{"revision", "Revision", 0}, column{"hash", "SHA-256", 0})

	b.row("Server")
	b.lines("Messages of agents", "", "reqps", query{"messages", `rate(warpgauge_fleet_messages_total` + server + `[$__rate_interval])`},
		query{"refused: {{reason}}", `rate(warpgauge_fleet_messages_refused_total` + server + `[$__rate_interval])`}).empty(fleet)
	b.lines("Memory", "", "bytes", query{"{{instance}}", `process_resident_memory_bytes` + server + ` and on (cluster, job, instance) warpgauge_fleet_agents_limit`}).empty(fleet)
	return b
}
