package main

// The part of Grafana's dashboard model (schema 39, Grafana 10 and later) that our
// dashboards use. Field names are Grafana's.

type dashboard struct {
	UID           string           `json:"uid"`
	Title         string           `json:"title"`
	Description   string           `json:"description"`
	Tags          []string         `json:"tags"`
	SchemaVersion int              `json:"schemaVersion"`
	Version       int              `json:"version"`
	Editable      bool             `json:"editable"`
	GraphTooltip  int              `json:"graphTooltip"` // 1: a crosshair in all panels
	Refresh       string           `json:"refresh"`
	Time          timeRange        `json:"time"`
	Timezone      string           `json:"timezone"`
	Templating    list[variable]   `json:"templating"`
	Annotations   list[annotation] `json:"annotations"`
	Links         []link           `json:"links"`
	Panels        []*panel         `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// annotation marks times in all graphs. expr and the fields after it belong to the Prometheus data source.
type annotation struct {
	Name       string      `json:"name"`
	Enable     bool        `json:"enable"`
	IconColor  string      `json:"iconColor"`
	Datasource *datasource `json:"datasource"`

	Expr            string `json:"expr"`
	Step            string `json:"step"`
	TitleFormat     string `json:"titleFormat"`
	TextFormat      string `json:"textFormat"`
	TagKeys         string `json:"tagKeys"`
	UseValueForTime bool   `json:"useValueForTime"`
}

// list wraps elements as Grafana does.
type list[T any] struct {
	List []T `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Query      any         `json:"query"`
	Datasource *datasource `json:"datasource,omitempty"`
	Refresh    int         `json:"refresh"` // 2: when the time range changes
	Sort       int         `json:"sort"`
	Multi      bool        `json:"multi"`
	IncludeAll bool        `json:"includeAll"`
	AllValue   string      `json:"allValue,omitempty"`
	Current    *chosen     `json:"current,omitempty"`
}

type chosen struct {
	Text  []string `json:"text"`
	Value []string `json:"value"`
}

type variableQuery struct {
	Query string `json:"query"`
	RefID string `json:"refId"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
	Icon        string   `json:"icon"`
	Tooltip     string   `json:"tooltip"`
	TargetBlank bool     `json:"targetBlank"`
}

type panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description,omitempty"`
	Datasource      *datasource      `json:"datasource,omitempty"`
	GridPos         gridPos          `json:"gridPos"`
	Targets         []target         `json:"targets,omitempty"`
	FieldConfig     fieldConfig      `json:"fieldConfig"`
	Options         map[string]any   `json:"options,omitempty"`
	Transformations []map[string]any `json:"transformations,omitempty"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string      `json:"refId"`
	Expr         string      `json:"expr"`
	LegendFormat string      `json:"legendFormat"`
	Format       string      `json:"format,omitempty"`
	Instant      bool        `json:"instant"`
	Range        bool        `json:"range"`
	Datasource   *datasource `json:"datasource"`
}

type fieldConfig struct {
	Defaults  defaults   `json:"defaults"`
	Overrides []override `json:"overrides"`
}

type defaults struct {
	Unit       string         `json:"unit,omitempty"`
	Min        *float64       `json:"min,omitempty"`
	NoValue    string         `json:"noValue,omitempty"` // shown instead of "No data"
	Links      []dataLink     `json:"links,omitempty"`
	Thresholds *thresholds    `json:"thresholds,omitempty"`
	Custom     map[string]any `json:"custom,omitempty"`
}

// dataLink leads from a value to another dashboard.
type dataLink struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

type override struct {
	Matcher    map[string]string `json:"matcher"`
	Properties []property        `json:"properties"`
}

type property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}
