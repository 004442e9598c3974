package main

import "slices"

// column is a column of a table: a label or the value. Width is in pixels; columns of width 0 share the remaining width
// equally.
type column struct {
	label, title string
	width        int
}

var (
	nodeColumn     = column{"instance", "Node", 120}
	gpuColumn      = column{"gpu", "GPU", 60}
	modelColumn    = column{"modelName", "Model", 0}
	instanceColumn = column{"GPU_I_ID", "MIG instance", 110}
	xidColumn      = column{"err_code", "XID", 60}
	xidTextColumn  = column{"err_msg", "Meaning", 0}
	uuidColumn     = column{"UUID", "UUID", 360}
)

// verdict returns the columns of the exporter's verdict on a device.
func verdict() []column {
	return []column{gpuColumn, {"state", "State", 100}, {"reason", "Reason", 0}, {"action", "Do", 130}, {"device", "Device", 0}}
}

// owners returns the columns of a device's owner.
func owners() []column {
	return []column{
		{"owner_namespace", "Namespace", 0}, {"owner_pod", "Pod", 0}, {"owner_container", "Container", 0}, {"hpc_job", "Job", 80},
		nodeColumn, gpuColumn, instanceColumn, {"GPU_CI_ID", "Compute instance", 130}, {"vgpu", "Replica", 80}, {"resource", "Resource", 180}, {"dra_claim_name", "Claim", 0}, uuidColumn,
	}
}

// value returns the column of the numbers.
func value(title string) column { return column{"Value", title, 130} }

// table adds a table of the newest values, with the labels that columns name, in that order. It has no column for a
// label that no series has. The largest values, or the first names, come first.
func (b *builder) table(w int, title, description, unit, expr string, columns ...column) *panel {
	sorted := []map[string]any{{"displayName": columns[0].title, "desc": false}}
	if last := columns[len(columns)-1]; last.label == "Value" {
		sorted[0] = map[string]any{"displayName": last.title, "desc": true}
	} else if slices.Contains(columns, gpuColumn) {
		sorted = append(sorted, map[string]any{"displayName": gpuColumn.title, "desc": false})
	}
	names, order, titles := []string{}, map[string]int{}, map[string]string{}
	var overrides []map[string]any
	for i, c := range columns {
		names, order[c.label], titles[c.label] = append(names, c.label), i, c.title
		overrides = append(overrides, map[string]any{"matcher": map[string]string{"id": "byName", "options": c.title}, "properties": c.properties(names, unit)})
	}
	p := b.place(&panel{
		Type: "table", Title: title, Description: description, Datasource: prometheus, Targets: targets(true, "table", []query{{"", expr}}),
		Transformations: []map[string]any{
			{"id": "filterFieldsByName", "options": map[string]any{"include": map[string]any{"names": names}}},
			{"id": "organize", "options": map[string]any{"excludeByName": map[string]bool{}, "indexByName": order, "renameByName": titles}},
		},
		Options: map[string]any{"showHeader": true, "cellHeight": "sm", "sortBy": sorted},
	}, w, 9)
	p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, overrides...)
	return p
}

// coloured colours the numbers of a table by steps.
func (p *panel) coloured(title string, steps ...step) *panel {
	p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, map[string]any{"matcher": map[string]string{"id": "byName", "options": title}, "properties": []property{
		{ID: "custom.cellOptions", Value: map[string]string{"type": "color-text"}},
		{ID: "thresholds", Value: map[string]any{"mode": "absolute", "steps": append([]step{{Color: "green"}}, steps...)}},
	}})
	return p
}

// properties returns the column's own settings after its names. A node links to its dashboard, a GPU in a node's row to
// the GPU dashboard, and a state has its colour. Only the number has the unit, because Grafana would also apply it to a
// GPU's index. An empty cell does not show the panel's text for missing data.
func (c column) properties(names []string, unit string) (out []property) {
	out = append(out, property{"noValue", ""})
	if c.width > 0 {
		out = append(out, property{"custom.width", c.width})
	}
	switch {
	case c.label == "Value":
		out = append(out, property{"unit", unit})
	case c.label == nodeColumn.label:
		out = append(out, property{"links", []dataLink{toNode("${__value.raw}")}})
	case c.label == gpuColumn.label && slices.Contains(names, nodeColumn.label):
		out = append(out, property{"links", []dataLink{toGPU("${__data.fields.Node}", "${__value.raw}")}})
	case c.label == "state":
		color := func(name string) map[string]string { return map[string]string{"color": name} }
		out = append(out, property{"custom.cellOptions", map[string]string{"type": "color-text"}}, property{"mappings", []map[string]any{{"type": "value", "options": map[string]any{
			"ok": color("green"), "degraded": color("orange"), "failed": color("red"), "unknown": color("text"),
		}}}})
	}
	return out
}

// chosenElse passes the chosen variables on to another dashboard.
const chosenElse = "${datasource:queryparam}&${cluster:queryparam}&${job:queryparam}&${__url_time_range}"

func toNode(instance string) dataLink {
	return dataLink{"title": "Node", "url": "/d/warpgauge-node?" + chosenElse + "&var-instance=" + instance}
}

func toGPU(instance, gpu string) dataLink {
	return dataLink{"title": "GPU in depth", "url": "/d/warpgauge-gpu?" + chosenElse + "&var-instance=" + instance + "&var-gpu=" + gpu}
}
