// Package apiv1 is for programs that ask an exporter: the types of its JSON API and a client. It has no
// part of the server (extensions/live/api), so warpctl links nothing that samples or serves.
//
// A Client's methods may be called from any goroutine; none starts a goroutine that outlives the call.
package apiv1

import "time"

// Absent and unknown: a text that is not known is left out, and so is a number; no
// answer has a 0 that was not read. Times are RFC 3339 in UTC with milliseconds, in
// samples and streams milliseconds since 1970. Durations are seconds.

// Devices is the answer of /api/v1/devices.
type Devices struct {
	Time       time.Time   `json:"time"`
	Hostname   string      `json:"hostname"`
	Version    string      `json:"version"`
	Simulated  bool        `json:"simulated"`           // of any device
	Recording  string      `json:"recording,omitempty"` // name of the recording that is replayed; Time is in it
	History    bool        `json:"history"`             // /api/v1/samples has some
	Recorder   bool        `json:"recorder"`            // /api/v1/recordings is answered
	Collectors []Collector `json:"collectors"`
	Devices    []Device    `json:"devices"`
}

// Collector is the state of one collector.
type Collector struct {
	Name   string `json:"name"`
	Up     bool   `json:"up"`
	Cause  string `json:"cause,omitempty"`  // why it is not up, from a short fixed list
	Reason string `json:"reason,omitempty"` // the same in words
}

// Device is a GPU, an instance of one, a link, a switch, a CPU, a core or a network adapter.
type Device struct {
	ID         string            `json:"id"`               // stable and unique on the node
	Parent     string            `json:"parent,omitempty"` // ID of the device this one is part of
	Kind       string            `json:"kind"`             // gpu, instance, compute instance, link, switch, cpu, core, connectx
	Collector  string            `json:"collector"`
	State      string            `json:"state"` // up, stalled, lost, absent, released
	Cause      string            `json:"cause,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Since      *time.Time        `json:"since,omitempty"`       // of the state, as far as the exporter has seen it
	LastSample *time.Time        `json:"last_sample,omitempty"` // of the last success
	Session    *time.Time        `json:"session,omitempty"`     // when the session that samples it began to serve
	Interval   float64           `json:"interval_seconds,omitempty"`
	GPU        string            `json:"gpu,omitempty"` // the index
	UUID       string            `json:"uuid,omitempty"`
	PCIBusID   string            `json:"pci_bus_id,omitempty"`
	Node       string            `json:"device,omitempty"` // "nvidia0"
	Model      string            `json:"model,omitempty"`
	Simulated  bool              `json:"simulated,omitempty"`
	Instance   *Instance         `json:"instance,omitempty"` // of a part of a GPU
	Labels     map[string]string `json:"labels,omitempty"`   // what only its kind has: nvlink, cpu …
	Facts      map[string]string `json:"facts,omitempty"`    // values of the list's label fields
	Users      []User            `json:"users,omitempty"`    // not with --web-page=anonymous
	Processes  []Process         `json:"processes,omitempty"`
}

// Instance describes a part of a GPU (MIG, AMD's partitions).
type Instance struct {
	Profile   string `json:"profile,omitempty"` // "1g.10gb"
	ID        string `json:"id,omitempty"`
	ComputeID string `json:"compute_id,omitempty"`
	UUID      string `json:"uuid,omitempty"`
}

// User is a pod's container or a job that uses a device.
type User struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	PodUID    string `json:"pod_uid,omitempty"`
	Container string `json:"container,omitempty"`
	Job       string `json:"job,omitempty"`
}

// Process is a process that has a context on a device.
type Process struct {
	PID    int      `json:"pid"`
	Name   string   `json:"name,omitempty"`
	Memory *float64 `json:"memory_bytes,omitempty"`
	Busy   *float64 `json:"utilization_percent,omitempty"`
	Pod    string   `json:"pod,omitempty"` // "namespace/pod/container"
	Job    string   `json:"job,omitempty"`
}

// Fields is the answer of /api/v1/fields?device=ID&field=PATTERN. Both can be repeated
// or left out, and a field's pattern has * for any text.
type Fields struct {
	Time    time.Time      `json:"time"`
	Devices []DeviceFields `json:"devices"`
}

// DeviceFields are the fields of one device, in the order of the list.
type DeviceFields struct {
	ID     string  `json:"id"`
	Fields []Field `json:"fields"`
}

// Field is one series of a device, or one field without a value and why.
type Field struct {
	Name      string            `json:"name"`             // as in the list
	Metric    string            `json:"metric,omitempty"` // the family on /metrics
	Help      string            `json:"help,omitempty"`
	Type      string            `json:"type"` // gauge, counter, histogram, untyped, label
	Unit      string            `json:"unit,omitempty"`
	Role      string            `json:"role,omitempty"`           // meaning of the series, whatever its name: temperature, memory_used …
	Rank      int               `json:"role_rank,omitempty"`      // of several series of a device with one role, the one with the lowest rank counts
	Window    float64           `json:"window_seconds,omitempty"` // over which the driver averages
	Interval  float64           `json:"interval_seconds,omitempty"`
	Collector string            `json:"collector,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"` // that tell series of one device and field apart
	Value     *float64          `json:"value,omitempty"`
	Text      string            `json:"text,omitempty"`        // of a label
	Age       *float64          `json:"age_seconds,omitempty"` // since it was read
	Absent    *Absence          `json:"absent,omitempty"`      // set if there is no value
}

// Absence says why there is no value.
type Absence struct {
	Reason string `json:"reason"`           // from a short fixed list, see docs/missing-values.md
	Detail string `json:"detail,omitempty"` // in words
}

// Samples is the answer of
// /api/v1/samples?device=ID&field=NAME&since=TIME|DURATION&until=…&points=N.
// Without points it has every sample; with points each point is a span of time.
type Samples struct {
	Device string          `json:"device"`
	Field  string          `json:"field"`
	Unit   string          `json:"unit,omitempty"`
	From   int64           `json:"from"` // ms
	Until  int64           `json:"until"`
	Step   int64           `json:"step,omitempty"` // ms per point; 0: samples as they were taken
	Series []SampledSeries `json:"series"`
}

// SampledSeries has slices of equal length. A blank sample is null. Times are when a
// sample was taken, or the beginning of a point's span.
type SampledSeries struct {
	Labels map[string]string `json:"labels,omitempty"`
	// Buffered are the samples of a driver's own buffer, which are more than the readings.
	Buffered bool       `json:"buffered,omitempty"`
	Times    []int64    `json:"times"`            // ms
	Values   []*float64 `json:"values,omitempty"` // without points
	Min      []*float64 `json:"min,omitempty"`    // with points
	Max      []*float64 `json:"max,omitempty"`
	Mean     []*float64 `json:"mean,omitempty"`
}

// Events is the answer of /api/v1/events?since=…&limit=N, the oldest first.
type Events struct {
	Events []Event `json:"events"`
}

// Event is something that happened on the node.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"` // xid, kernel_log, clock_event, device_state, collector_state, reload, failover, recording, health
	Device string    `json:"device,omitempty"`
	GPU    string    `json:"gpu,omitempty"`
	Code   *int      `json:"code,omitempty"`   // of an XID
	Source string    `json:"source,omitempty"` // who reported it first: a collector, kernel log
	Text   string    `json:"text"`
	// Bad marks what needs attention: an XID, a device that is not up, a reload that failed.
	Bad bool `json:"bad,omitempty"`
}

// Health is the answer of /api/v1/health.
type Health struct {
	Time    time.Time      `json:"time"`
	State   string         `json:"state"` // the worst of the devices: ok, degraded, failed, unknown
	Ready   bool           `json:"ready"`
	Reasons []string       `json:"reasons,omitempty"` // why it is not ready, and other problems
	Devices []DeviceHealth `json:"devices"`
}

// DeviceHealth is the verdict on one device.
type DeviceHealth struct {
	ID         string            `json:"id"`
	GPU        string            `json:"gpu,omitempty"`
	State      string            `json:"state"`            // ok, degraded, failed, unknown
	Reason     string            `json:"reason,omitempty"` // code of the worst condition: xid_79; see docs/health.md
	Text       string            `json:"text,omitempty"`   // the same in words
	Action     string            `json:"action,omitempty"` // none, drain, reset_gpu, reboot, replace, contact_vendor
	Since      *time.Time        `json:"since,omitempty"`
	Conditions []HealthCondition `json:"conditions,omitempty"` // present problems, the worst first
	Unjudged   []HealthUnjudged  `json:"unjudged,omitempty"`   // rules that cannot be evaluated: the device lacks a reading
}

// HealthUnjudged is a rule that says nothing of a device, and why.
type HealthUnjudged struct {
	Rule string `json:"rule"`
	Why  string `json:"why"` // as in Absence
}

// HealthCondition is one thing that is wrong with a device.
type HealthCondition struct {
	Reason   string           `json:"reason"`
	State    string           `json:"state"` // ok: for information
	Action   string           `json:"action"`
	Text     string           `json:"text"`
	Since    time.Time        `json:"since"`
	Last     time.Time        `json:"last"`
	Evidence []HealthEvidence `json:"evidence,omitempty"` // the newest last
}

// HealthEvidence is one thing that was seen.
type HealthEvidence struct {
	Time   time.Time `json:"time"`
	Source string    `json:"source"` // nvml, dcgm, sysfs, kernel log, pci
	Text   string    `json:"text"`
}

// List is the answer of /api/v1/list: the field list in service.
type List struct {
	Source    string         `json:"source"`             // path, ConfigMap, "built in" or the URL of a server
	Hash      string         `json:"hash"`               // SHA-256 of its bytes
	Revision  string         `json:"revision,omitempty"` // what the server calls it
	Applied   time.Time      `json:"applied"`
	Until     *time.Time     `json:"until,omitempty"`      // when the former list returns
	LastError string         `json:"last_error,omitempty"` // of the last reload
	FailedAt  *time.Time     `json:"failed_at,omitempty"`
	Remote    *RemoteList    `json:"remote,omitempty"`    // not with --remote-config=off
	Proposals []ListProposal `json:"proposals,omitempty"` // the last one of each kind, newest first
	Fields    []ListField    `json:"fields"`
}

// ListProposal is a requested change, and the answer.
type ListProposal struct {
	By     string    `json:"by"`   // SIGHUP, "POST /-/reload", "file change", the URL of a server
	What   string    `json:"what"` // reload, list, profiling, release
	At     time.Time `json:"at"`
	Answer string    `json:"answer"` // applied, unchanged, waiting, reported, refused, failed, ended
	Text   string    `json:"text,omitempty"`
}

// RemoteList reports the outcome of the list that a server delivered last.
type RemoteList struct {
	Mode        string    `json:"mode"`   // report, apply
	Status      string    `json:"status"` // waiting, applied, reported, refused, failed, ended, unreachable
	Text        string    `json:"text,omitempty"`
	Since       time.Time `json:"since"`
	Hash        string    `json:"hash,omitempty"`
	Refused     []Refusal `json:"refused,omitempty"`
	Unreachable string    `json:"unreachable,omitempty"` // why the last request failed
	Unkept      string    `json:"unkept,omitempty"`      // why the list in service is not kept on disk
	Local       string    `json:"local"`                 // hash of the list that serves without a server's
}

// Refusal is one thing that is wrong with a delivered list.
type Refusal struct {
	Line int    `json:"line,omitempty"` // 0: the whole list
	Text string `json:"text"`
}

// ListField is a line of the list.
type ListField struct {
	Name     string  `json:"name"`
	Metric   string  `json:"metric,omitempty"`
	Type     string  `json:"type"`
	Help     string  `json:"help,omitempty"`
	Unit     string  `json:"unit,omitempty"`
	Interval float64 `json:"interval_seconds,omitempty"`
	Roles    []Role  `json:"roles,omitempty"`
}

// Role is the meaning of a field's series, whatever the field's name.
type Role struct {
	Role  string `json:"role"`
	Label string `json:"label,omitempty"` // value of one of the series' labels; left out: the series has none; "*": all series of the field
	Rank  int    `json:"rank"`            // of several series of a device with one role, the one with the lowest rank counts
}

// /api/v1/stream?device=ID&field=PATTERN&interval=SECONDS sends server-sent events until
// the client leaves. Its events are:
//
//	columns  StreamColumns: what the values of the following rows are. Sent first, and
//	         again when columns change.
//	rows     StreamRows: new rows, at most one event per interval (default 1 s, at least 0.1 s)
//	devices  a Device, when its state, users or processes have changed
//	health   a DeviceHealth, when the verdict on a device has changed
//	event    an Event
//	problem  a Problem: why the exporter ends the stream; the last event
//
// Streams send changes only: ask for the present devices, verdicts and events when a
// stream has sent its columns.

// StreamColumns is the data of an event "columns".
type StreamColumns struct {
	Columns []StreamColumn `json:"columns"`
}

// StreamColumn is one series.
type StreamColumn struct {
	Device string            `json:"device"`
	Field  string            `json:"field"`
	Unit   string            `json:"unit,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// StreamRows is the data of an event "rows". Rows of different sources have different
// times, so each row names its columns.
type StreamRows struct {
	Rows []StreamRow `json:"rows"`
}

// StreamRow has the values of one instant: Values[i] belongs to Columns[First+i] of the
// last StreamColumns; null is blank, or the device was not read at that time.
type StreamRow struct {
	Time   int64      `json:"t"` // ms
	First  int        `json:"first"`
	Values []*float64 `json:"v"`
}

// Recordings is the answer of /api/v1/recordings, the newest first. A file is at
// /api/v1/recordings/NAME.
type Recordings struct {
	Recordings []Recording `json:"recordings"`
}

// Recording is a file of the flight recorder.
type Recording struct {
	Name   string    `json:"name"`
	Time   time.Time `json:"time"` // of the event that triggered it
	Cause  string    `json:"cause"`
	Device string    `json:"device,omitempty"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	Bytes  int64     `json:"bytes"`
}

// Problem is every error's answer, RFC 9457's application/problem+json.
type Problem struct { //nolint:errname // most code uses it as an answer, so it has the answer's name
	Type   string `json:"type"` // about:blank
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"` // the problem, and the remedy
}

// Error makes a Problem an error.
func (p *Problem) Error() string { return p.Detail }
