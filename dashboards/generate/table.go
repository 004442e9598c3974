package main

// column is a column of a table: a label, or the value. Width is in pixels; 0 is an
// equal part of what the others leave.
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

// verdict is what the exporter says of a device's health.
func verdict() []column {
	return []column{gpuColumn, {"state", "State", 100}, {"reason", "Reason", 0}, {"action", "Do", 130}, {"device", "Device", 0}}
}

// owners are who has a device.
func owners() []column {
	return []column{
		{"namespace", "Namespace", 0}, {"pod", "Pod", 0}, {"container", "Container", 0}, {"hpc_job", "Job", 80},
		nodeColumn, gpuColumn, instanceColumn, {"GPU_CI_ID", "Compute instance", 130}, {"vgpu", "Replica", 80}, {"resource", "Resource", 180}, {"dra_claim_name", "Claim", 0}, uuidColumn,
	}
}

// value is the column of the numbers.
func value(title string) column { return column{"Value", title, 130} }

// table is the newest values with those of their labels that columns name, in that
// order. A label that no series has makes no column. The largest values, or the
// first names, come first.
func (b *builder) table(w int, title, description, unit, expr string, columns ...column) {
	sorted := columns[0]
	if last := columns[len(columns)-1]; last.label == "Value" {
		sorted = last
	}
	names, order, titles := []string{}, map[string]int{}, map[string]string{}
	var widths []override
	for i, c := range columns {
		names, order[c.label], titles[c.label] = append(names, c.label), i, c.title
		if c.width > 0 {
			widths = append(widths, override{
				Matcher:    matcher{ID: "byName", Options: c.title},
				Properties: []property{{ID: "custom.width", Value: c.width}},
			})
		}
	}
	p := b.place(&panel{
		Type: "table", Title: title, Description: description, Datasource: prometheus, Targets: targets(true, "table", []query{{"", expr}}),
		Transformations: []transformation{
			{ID: "filterFieldsByName", Options: map[string]any{"include": map[string]any{"names": names}}},
			{ID: "organize", Options: map[string]any{"excludeByName": map[string]bool{}, "indexByName": order, "renameByName": titles}},
		},
		Options: map[string]any{"showHeader": true, "cellHeight": "sm", "sortBy": []map[string]any{{"displayName": sorted.title, "desc": sorted.label == "Value"}}},
	}, w, 9)
	p.FieldConfig.Defaults.Unit = unit
	p.FieldConfig.Overrides = append(p.FieldConfig.Overrides, widths...)
}
