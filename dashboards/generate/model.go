package main

// The part of Grafana's dashboard model (schema 39, Grafana 10 and later) that our
// dashboards use. Field names are Grafana's.

type dashboard struct {
	UID           string                      `json:"uid"`
	Title         string                      `json:"title"`
	Description   string                      `json:"description"`
	Tags          []string                    `json:"tags"`
	SchemaVersion int                         `json:"schemaVersion"`
	Version       int                         `json:"version"`
	Editable      bool                        `json:"editable"`
	GraphTooltip  int                         `json:"graphTooltip"` // 1: a crosshair in all panels
	Refresh       string                      `json:"refresh"`
	Time          map[string]string           `json:"time"`
	Timezone      string                      `json:"timezone"`
	Templating    map[string][]variable       `json:"templating"`
	Annotations   map[string][]map[string]any `json:"annotations"`
	Links         []map[string]any            `json:"links"`
	Panels        []*panel                    `json:"panels"`
}

type variable map[string]any

type datasource map[string]string

type panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description,omitempty"`
	Datasource      datasource       `json:"datasource,omitempty"`
	GridPos         map[string]int   `json:"gridPos"`
	Targets         []map[string]any `json:"targets,omitempty"`
	FieldConfig     fieldConfig      `json:"fieldConfig"`
	Options         map[string]any   `json:"options,omitempty"`
	Transformations []map[string]any `json:"transformations,omitempty"`
}

type fieldConfig struct {
	Defaults  defaults         `json:"defaults"`
	Overrides []map[string]any `json:"overrides"`
}

type defaults struct {
	Unit       string         `json:"unit,omitempty"`
	Min        *float64       `json:"min,omitempty"`
	NoValue    string         `json:"noValue,omitempty"` // shown instead of "No data"
	Links      []dataLink     `json:"links,omitempty"`
	Thresholds map[string]any `json:"thresholds,omitempty"`
	Custom     map[string]any `json:"custom,omitempty"`
}

// dataLink leads from a value to another dashboard.
type dataLink map[string]string

type property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}
