// Package apiv1 is for programs that query an exporter: the types of its JSON API and a client. It contains no part of the server
// (extensions/live/api), so warpctl links no code that samples or serves.
//
// A Client is safe for concurrent use. No method starts a goroutine that outlives the call.
package apiv1

import (
	"io/fs"
	"net/http"
	"time"
)

// Answers omit unknown texts and numbers; they never replace them with 0. Times are RFC 3339 in UTC with milliseconds; in
// samples and streams they are milliseconds since 1970. Durations are in seconds.

// Devices is the answer of /api/v1/devices.
type Devices struct {
	Time       time.Time   `json:"time"`
	Hostname   string      `json:"hostname"`
	Version    string      `json:"version"`
	Simulated  bool        `json:"simulated"`           // whether any device is simulated
	Recording  string      `json:"recording,omitempty"` // name of the replayed recording, which contains Time
	History    bool        `json:"history"`             // /api/v1/samples has samples
	Recorder   bool        `json:"recorder"`            // /api/v1/recordings exists
	Collectors []Collector `json:"collectors"`
	Devices    []Device    `json:"devices"`
}

// Collector is the state of one collector.
type Collector struct {
	Name   string `json:"name"`
	Vendor string `json:"vendor,omitempty"` // of its devices; "": unknown or simulated
	Up     bool   `json:"up"`
	Cause  string `json:"cause,omitempty"`  // why it is not up, from a fixed list
	Reason string `json:"reason,omitempty"` // the cause in words
}

// Device is a GPU, an instance of one, a link, a switch, a CPU, a core or a network adapter.
type Device struct {
	ID         string            `json:"id"`               // stable and unique on the node
	Parent     string            `json:"parent,omitempty"` // ID of the device that contains it
	Kind       string            `json:"kind"`             // gpu, instance, compute instance, link, switch, cpu, core, connectx
	Collector  string            `json:"collector"`
	Status     Status            `json:"status"` // for people
	State      string            `json:"state"`  // up, stalled, lost, absent, released
	Cause      string            `json:"cause,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Since      *time.Time        `json:"since,omitempty"`       // since when, as far as the exporter observed
	LastSample *time.Time        `json:"last_sample,omitempty"` // last successful sample
	Session    *time.Time        `json:"session,omitempty"`     // when its session began to serve
	Interval   float64           `json:"interval_seconds,omitempty"`
	GPU        string            `json:"gpu,omitempty"` // the index
	UUID       string            `json:"uuid,omitempty"`
	PCIBusID   string            `json:"pci_bus_id,omitempty"`
	Node       string            `json:"device,omitempty"` // "nvidia0"
	Model      string            `json:"model,omitempty"`
	Simulated  bool              `json:"simulated,omitempty"`
	Instance   *Instance         `json:"instance,omitempty"` // for a part of a GPU
	Labels     map[string]string `json:"labels,omitempty"`   // specific to the kind: nvlink, cpu …
	Facts      map[string]string `json:"facts,omitempty"`    // values of the list's label fields
	Users      []User            `json:"users,omitempty"`    // absent with --web-page=anonymous
	Processes  []Process         `json:"processes,omitempty"`
}

// Status describes a device in one word. The live page, devices, top and doctor show it.
type Status struct {
	Word  string     `json:"word"`          // failed, degraded or unknown, as judged; otherwise the State
	Why   string     `json:"why,omitempty"` // ends with the action, if there is one
	Since *time.Time `json:"since,omitempty"`
}

// Instance describes a part of a GPU (MIG instance or AMD partition).
type Instance struct {
	Profile   string `json:"profile,omitempty"` // "1g.10gb"
	ID        string `json:"id,omitempty"`
	ComputeID string `json:"compute_id,omitempty"`
	UUID      string `json:"uuid,omitempty"`
}

// User is a container of a pod, or a job, that uses a device.
type User struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	PodUID    string `json:"pod_uid,omitempty"`
	Container string `json:"container,omitempty"`
	Job       string `json:"job,omitempty"`
}

// Process is a process with a context on a device.
type Process struct {
	PID    int      `json:"pid"`
	Name   string   `json:"name,omitempty"`
	Memory *float64 `json:"memory_bytes,omitempty"`
	Busy   *float64 `json:"utilization_percent,omitempty"`
	Pod    string   `json:"pod,omitempty"` // "namespace/pod"
	Job    string   `json:"job,omitempty"`
}

// Fields is the answer of /api/v1/fields?device=ID&field=PATTERN. Both can be repeated or omitted.
// In a pattern, * matches any text.
type Fields struct {
	Time    time.Time      `json:"time"`
	Devices []DeviceFields `json:"devices"`
}

// DeviceFields lists the fields of one device, in the order of the list.
type DeviceFields struct {
	ID     string  `json:"id"`
	Fields []Field `json:"fields"`
}

// Field is one series of a device, or a field without a value and the reason.
type Field struct {
	Name      string            `json:"name"`             // name in the list
	Metric    string            `json:"metric,omitempty"` // the family on /metrics
	Help      string            `json:"help,omitempty"`
	Type      string            `json:"type"` // gauge, counter, histogram, untyped, label
	Unit      string            `json:"unit,omitempty"`
	Role      string            `json:"role,omitempty"`           // meaning, independent of the name: temperature, memory_used …
	Rank      int               `json:"role_rank,omitempty"`      // if several series of a device have one role, the lowest rank counts
	Window    float64           `json:"window_seconds,omitempty"` // averaging period of the driver
	Interval  float64           `json:"interval_seconds,omitempty"`
	Collector string            `json:"collector,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"` // distinguish series of the same device and field
	Value     *float64          `json:"value,omitempty"`
	Text      string            `json:"text,omitempty"`        // value of a label field
	Age       *float64          `json:"age_seconds,omitempty"` // since the last read
	Absent    *Absence          `json:"absent,omitempty"`      // only without a value
}

// Absence is the reason for a missing value.
type Absence struct {
	Reason string `json:"reason"`           // from a fixed list, see docs/missing-values.md
	Detail string `json:"detail,omitempty"` // in words
}

// Samples is the answer of
// /api/v1/samples?device=ID&field=NAME&since=TIME|DURATION&until=…&points=N. Without points it has
// every sample; otherwise each point summarises a span of time.
type Samples struct {
	Device string          `json:"device"`
	Field  string          `json:"field"`
	Unit   string          `json:"unit,omitempty"`
	From   int64           `json:"from"` // ms
	Until  int64           `json:"until"`
	Step   int64           `json:"step,omitempty"` // ms per point; 0: unchanged samples
	Series []SampledSeries `json:"series"`
}

// SampledSeries has slices of equal length. A blank sample is null. Times are the times of samples,
// or the start of each point's span.
type SampledSeries struct {
	Labels map[string]string `json:"labels,omitempty"`
	// Buffered marks samples from a driver's own buffer, which come more often than readings.
	Buffered bool       `json:"buffered,omitempty"`
	Times    []int64    `json:"times"`            // ms
	Values   []*float64 `json:"values,omitempty"` // without points
	Min      []*float64 `json:"min,omitempty"`    // with points
	Max      []*float64 `json:"max,omitempty"`
	Mean     []*float64 `json:"mean,omitempty"`
}

// Events is the answer of /api/v1/events?since=…&limit=N, oldest first.
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
	Source string    `json:"source,omitempty"` // first reporter: a collector or the kernel log
	Text   string    `json:"text"`
	// Bad marks events that need attention: an XID, a device that is not up, a failed reload.
	Bad bool `json:"bad,omitempty"`
}

// Health is the answer of /api/v1/health.
type Health struct {
	Time    time.Time      `json:"time"`
	State   string         `json:"state"` // worst state of the devices: ok, degraded, failed, unknown
	Ready   bool           `json:"ready"`
	Reasons []string       `json:"reasons,omitempty"` // why the exporter is not ready, and other problems
	Devices []DeviceHealth `json:"devices"`
}

// DeviceHealth is the verdict on one device.
type DeviceHealth struct {
	ID         string            `json:"id"`
	GPU        string            `json:"gpu,omitempty"`
	State      string            `json:"state"`            // ok, degraded, failed, unknown
	Reason     string            `json:"reason,omitempty"` // code of the worst condition, such as xid_79; see docs/health.md
	Text       string            `json:"text,omitempty"`   // the reason in words
	Action     string            `json:"action,omitempty"` // none, drain, reset_gpu, reboot, replace, contact_vendor
	Since      *time.Time        `json:"since,omitempty"`
	Conditions []HealthCondition `json:"conditions,omitempty"` // current problems, worst first
	Unjudged   []HealthUnjudged  `json:"unjudged,omitempty"`   // rules that cannot be evaluated because the device lacks a reading
}

// HealthUnjudged is a rule that cannot judge a device, with the reason.
type HealthUnjudged struct {
	Rule string `json:"rule"`
	Why  string `json:"why"` // see Absence
}

// HealthCondition is a problem of a device.
type HealthCondition struct {
	Reason   string           `json:"reason"`
	State    string           `json:"state"` // ok: informational
	Action   string           `json:"action"`
	Text     string           `json:"text"`
	Since    time.Time        `json:"since"`
	Last     time.Time        `json:"last"`
	Evidence []HealthEvidence `json:"evidence,omitempty"` // newest last
}

// HealthEvidence is a single observation.
type HealthEvidence struct {
	Time   time.Time `json:"time"`
	Source string    `json:"source"` // nvml, dcgm, sysfs, kernel log, pci
	Text   string    `json:"text"`
}

// List is the answer of /api/v1/list: the field list in service.
type List struct {
	Source    string         `json:"source"`             // path, ConfigMap, "built in" or the URL of a server
	Hash      string         `json:"hash"`               // SHA-256 of its bytes
	Revision  string         `json:"revision,omitempty"` // the server's name for this version
	Applied   time.Time      `json:"applied"`
	Until     *time.Time     `json:"until,omitempty"`      // end of this list
	LastError string         `json:"last_error,omitempty"` // error of the last reload
	FailedAt  *time.Time     `json:"failed_at,omitempty"`
	Remote    *RemoteList    `json:"remote,omitempty"`    // absent with --remote-config=off
	Proposals []ListProposal `json:"proposals,omitempty"` // the last of each kind, newest first
	Fields    []ListField    `json:"fields"`
}

// ListProposal is a proposed change with its outcome.
type ListProposal struct {
	By     string    `json:"by"`   // SIGHUP, "POST /-/reload", "file change", the URL of a server
	What   string    `json:"what"` // reload, list, profiling, release
	At     time.Time `json:"at"`
	Answer string    `json:"answer"` // applied, unchanged, waiting, reported, refused, failed, ended
	Text   string    `json:"text,omitempty"`
}

// RemoteList describes the last list from a server.
type RemoteList struct {
	Mode        string    `json:"mode"`   // report, apply
	Status      string    `json:"status"` // waiting, applied, reported, refused, failed, ended, unreachable
	Text        string    `json:"text,omitempty"`
	Since       time.Time `json:"since"`
	Hash        string    `json:"hash,omitempty"`
	Refused     []Refusal `json:"refused,omitempty"`
	Unreachable string    `json:"unreachable,omitempty"` // error of the last request
	Unkept      string    `json:"unkept,omitempty"`      // why the list could not be saved to disk
	Local       string    `json:"local"`                 // hash of the local list, which serves without a server's list
}

// Refusal is an error in a delivered list.
type Refusal struct {
	Line int    `json:"line,omitempty"` // 0 for the whole list
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

// Role is the meaning of a field's series, independent of the field's name.
type Role struct {
	Role  string `json:"role"`
	Label string `json:"label,omitempty"` // value of one of the series' labels; absent: no label; "*": all series of the field
	Rank  int    `json:"rank"`            // if several series of a device have one role, the lowest rank counts
}

// /api/v1/stream?device=ID&field=PATTERN&interval=SECONDS sends server-sent events until the client leaves. Its events are:
//
//	columns  StreamColumns: what the values of the following rows are. Sent first, and
//	         again when columns change.
//	rows     StreamRows: new rows, at most one event per interval (default 1 s, at least 0.1 s)
//	devices  a Device, when its state, users or processes have changed
//	health   a DeviceHealth, when the verdict on a device has changed
//	event    an Event
//	problem  a Problem: why the exporter ends the stream; the last event
//
// Streams send only changes. Query the current devices, verdicts and events once a stream has sent its columns.

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

// StreamRows is the data of an event "rows". Each row names its columns, because sources are sampled at different times.
type StreamRows struct {
	Rows []StreamRow `json:"rows"`
}

// StreamRow has the values of one time: Values[i] belongs to Columns[First+i] of the last
// StreamColumns. null is blank, or the device was not read then.
type StreamRow struct {
	Time   int64      `json:"t"` // ms
	First  int        `json:"first"`
	Values []*float64 `json:"v"`
}

// Recordings is the answer of /api/v1/recordings, newest first. /api/v1/recordings/NAME returns a file.
type Recordings struct {
	Recordings []Recording `json:"recordings"`
}

// Recording is a file of the flight recorder.
type Recording struct {
	Name   string    `json:"name"`
	Time   time.Time `json:"time"` // of the trigger
	Cause  string    `json:"cause"`
	Device string    `json:"device,omitempty"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	Bytes  int64     `json:"bytes"`
}

// Problem is the answer for every error: RFC 9457's application/problem+json.
type Problem struct { //nolint:errname // mostly used as an answer, so it has an answer's name
	Type   string `json:"type"` // about:blank
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"` // problem and remedy
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// Is reports whether target says the same for errors.Is.
func (p *Problem) Is(target error) bool {
	return target == fs.ErrNotExist && p.Status == http.StatusNotFound
}
