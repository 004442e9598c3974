package main

import (
	"cmp"
	"fmt"
	"slices"
)

var prometheus = datasource{"type": "prometheus", "uid": "${datasource}"}

// newDashboard returns a dashboard whose first variables are the data source, the cluster and the job, with links to
// the other dashboards and the annotations of the chosen nodes.
func newDashboard(uid, title, description string, variables ...variable) *builder {
	all := append([]variable{{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}, cluster, job}, variables...)
	return &builder{d: &dashboard{
		UID: uid, Title: title, Description: description, Tags: []string{"warpgauge", "gpu"},
		SchemaVersion: 39, Version: 1, Editable: true, GraphTooltip: 1, Refresh: "30s",
		Time: map[string]string{"from": "now-1h", "to": "now"}, Timezone: "browser",
		Templating: map[string][]variable{"list": all}, Annotations: map[string][]map[string]any{"list": {}},
		Links: []map[string]any{{"title": "GPUs", "type": "dashboards", "tags": []string{"warpgauge"}, "asDropdown": true, "includeVars": true, "keepTime": true, "icon": "external link", "tooltip": "", "targetBlank": false}},
	}}
}

// choice returns a variable with the values of a metric's label.
func choice(name, label, of, metric string) variable {
	return variable{
		"name": name, "label": label, "type": "query", "datasource": prometheus, "refresh": 2, "sort": 3, "multi": true, "includeAll": true, "allValue": ".*", // refreshed when the time range changes
		"current": map[string][]string{"text": {"All"}, "value": {"$__all"}},
		"query":   map[string]string{"query": fmt.Sprintf("label_values(%s, %s)", metric, of), "refId": name},
	}
}

// builder places panels on Grafana's grid of 24 columns, from left to right and from top to bottom.
type builder struct {
	d       *dashboard
	x, y, h int

	legend string     // position of the legend in line panels; bottom if empty
	links  []dataLink // of line panels
}

func (b *builder) row(title string) {
	b.feed()
	b.place(&panel{Type: "row", Title: title}, 24, 1)
	b.feed()
}

// feed begins a new row of panels.
func (b *builder) feed() { b.x, b.y, b.h = 0, b.y+b.h, 0 }

func (b *builder) place(p *panel, w, h int) *panel {
	if b.x+w > 24 {
		b.feed()
	}
	p.ID = len(b.d.Panels) + 1
	p.GridPos = map[string]int{"h": h, "w": w, "x": b.x, "y": b.y}
	if p.FieldConfig.Overrides == nil {
		p.FieldConfig.Overrides = []map[string]any{}
	}
	b.x += w
	b.h = max(b.h, h)
	b.d.Panels = append(b.d.Panels, p)
	return p
}

// query is one expression of a panel and the legend of its series.
type query struct{ legend, expr string }

func targets(instant bool, format string, queries []query) (out []map[string]any) {
	for i, q := range queries {
		out = append(out, map[string]any{"refId": string(rune('A' + i)), "expr": bothGenerations(q.expr), "legendFormat": q.legend, "instant": instant, "range": !instant, "datasource": prometheus})
		if format != "" {
			out[i]["format"] = format
		}
	}
	return out
}

// lines adds a time series panel over half of the width. unit is one of Grafana's names.
func (b *builder) lines(title, description, unit string, queries ...query) *panel {
	p := b.place(&panel{
		Type: "timeseries", Title: title, Description: description, Datasource: prometheus, Targets: targets(false, "", queries),
		Options: map[string]any{
			"legend":  map[string]any{"displayMode": "table", "placement": cmp.Or(b.legend, "bottom"), "showLegend": true, "calcs": []string{"mean", "max", "lastNotNull"}},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
		},
	}, 12, 9)
	p.FieldConfig.Defaults.Unit, p.FieldConfig.Defaults.Links = unit, b.links
	// Gaps stay visible: a device that does not answer has no values.
	p.FieldConfig.Defaults.Custom = map[string]any{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 0, "spanNulls": false, "showPoints": "never"}
	if slices.Contains([]string{"percent", "percentunit", "watt", "mbytes", "bytes", "Bps", "MBs", "cps", "reqps", "s"}, unit) {
		p.FieldConfig.Defaults.Min = new(0.0)
	}
	return p
}

// stacked adds a panel of stacked lines.
func (b *builder) stacked(title, description, unit string, queries ...query) *panel {
	p := b.lines(title, description, unit, queries...)
	p.FieldConfig.Defaults.Custom["stacking"] = map[string]any{"mode": "normal", "group": "A"}
	p.FieldConfig.Defaults.Custom["fillOpacity"] = 40
	return p
}

// limits draws thresholds as dashed lines.
func (p *panel) limits(steps ...step) *panel {
	p.FieldConfig.Defaults.Custom["thresholdsStyle"] = map[string]any{"mode": "dashed"}
	p.FieldConfig.Defaults.Thresholds = map[string]any{"mode": "absolute", "steps": append([]step{{Color: "transparent"}}, steps...)}
	return p
}

// empty sets the text that the panel shows without data: the reason.
func (p *panel) empty(reason string) { p.FieldConfig.Defaults.NoValue = reason }

// stat adds a panel with one number, coloured by thresholds. It is green below the first.
func (b *builder) stat(w int, title, description, unit, expr string, steps ...step) *panel {
	p := b.place(&panel{
		Type: "stat", Title: title, Description: description, Datasource: prometheus, Targets: targets(true, "", []query{{"", expr}}),
		Options: map[string]any{
			"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"colorMode":     "value", "graphMode": "none", "textMode": "value", "text": map[string]any{"valueSize": 36}, // px, the same for all panels of a row
		},
	}, w, 4)
	p.FieldConfig.Defaults.Unit = unit
	p.FieldConfig.Defaults.Thresholds = map[string]any{"mode": "absolute", "steps": append([]step{{Color: "green"}}, steps...)}
	return p
}

// heatmap adds a heatmap of a classic histogram. It counts every sample of the exporter, not only those at scrapes.
func (b *builder) heatmap(w int, title, description, unit, expr string) *panel {
	p := b.place(&panel{
		Type: "heatmap", Title: title, Description: description, Datasource: prometheus, Targets: targets(false, "heatmap", []query{{"{{le}}", expr}}),
		Options: map[string]any{
			"calculate": false, "cellGap": 1, "yAxis": map[string]any{"unit": unit, "axisPlacement": "left"},
			"color":   map[string]any{"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
			"tooltip": map[string]any{"mode": "single", "yHistogram": true},
		},
	}, w, 9)
	p.FieldConfig.Defaults.Custom = map[string]any{"scaleDistribution": map[string]any{"type": "linear"}}
	return p
}

func from(v float64, color string) step { return step{Color: color, Value: &v} }
