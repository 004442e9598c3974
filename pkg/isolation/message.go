package isolation

import (
	"strconv"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/sampler"
)

// hello is the child's first message.
type hello struct {
	build string
	pid   int
}

func (m *hello) encode(e *encoder) {
	e.text(m.build, maxName)
	e.uint(uint64(m.pid))
}

func (m *hello) decode(d *decoder) {
	m.build = d.text(maxName)
	m.pid = int(d.below(1 << 31))
}

// setup is the parent's answer.
type setup struct {
	version uint64 // of the list
	list    []byte // CSV
	start   int64  // of the exporter, Unix ns
	level   string // of the log

	interval, slow, static, deadline, open, rescan, retry, lost, stop, span time.Duration
}

func (m *setup) durations() []*time.Duration {
	return []*time.Duration{
		&m.interval, &m.slow, &m.static, &m.deadline, &m.open,
		&m.rescan, &m.retry, &m.lost, &m.stop, &m.span,
	}
}

func (m *setup) encode(e *encoder) {
	e.uint(m.version)
	e.bytes(m.list)
	e.int(m.start)
	e.text(m.level, maxName)
	for _, d := range m.durations() {
		e.int(int64(*d))
	}
}

func (m *setup) decode(d *decoder) {
	m.version = d.uint()
	m.list = append([]byte(nil), d.bytes(maxListBytes)...)
	m.start = d.int()
	m.level = d.text(maxName)
	for _, at := range m.durations() {
		*at = time.Duration(d.int())
	}
}

// listChange is a reload.
type listChange struct {
	version uint64
	list    []byte
}

func (m *listChange) encode(e *encoder) {
	e.uint(m.version)
	e.bytes(m.list)
}

func (m *listChange) decode(d *decoder) {
	m.version = d.uint()
	m.list = append([]byte(nil), d.bytes(maxListBytes)...)
}

// reloaded says how a reload ended; problem is empty if well.
type reloaded struct {
	version uint64
	problem string
}

func (m *reloaded) encode(e *encoder) {
	e.uint(m.version)
	e.text(m.problem, maxText)
}

func (m *reloaded) decode(d *decoder) {
	m.version = d.uint()
	m.problem = d.text(maxText)
}

// source asks for the memory of a ring. Ids grow.
type source struct {
	id      uint64
	rows    int
	devices []collector.Device
	columns []collector.Column
}

func (m *source) encode(e *encoder) {
	e.uint(m.id)
	e.uint(uint64(m.rows))
	e.uint(uint64(len(m.devices)))
	for i := range m.devices {
		encodeDevice(e, &m.devices[i])
	}
	e.uint(uint64(len(m.columns)))
	for i := range m.columns {
		c := &m.columns[i]
		e.uint(uint64(c.Device))
		e.uint(uint64(c.Field))
		encodeLabels(e, c.Labels, maxLabels)
	}
}

func (m *source) decode(d *decoder) {
	m.id = d.uint()
	if m.rows = int(d.below(maxRows + 1)); m.rows == 0 {
		d.fail("a ring without rows")
	}
	m.devices = make([]collector.Device, d.count(maxDevices, deviceBytes))
	seen := make(map[string]bool, len(m.devices))
	for i := range m.devices {
		decodeDevice(d, &m.devices[i])
		id := m.devices[i].ID
		if id == "" || seen[id] {
			d.fail("device id %q is empty or not unique", id)
		}
		seen[id] = true
	}
	m.columns = make([]collector.Column, d.count(maxColumns, 3))
	for i := range m.columns {
		m.columns[i] = collector.Column{
			Device: int(d.below(uint64(len(m.devices)))),
			Field:  field.ID(d.below(1 << 16)),
			Labels: decodeLabels(d, maxLabels),
		}
	}
}

// deviceBytes is the least that a device takes: its texts' lengths, level and
// the length of its facts.
const deviceBytes = 18

func deviceTexts(v *collector.Device) [17]*string {
	return [...]*string{
		&v.ID, &v.Parent, &v.GPU, &v.UUID, &v.PCIBusID, &v.Node, &v.Model,
		&v.InstanceProfile, &v.InstanceID, &v.ComputeID, &v.MIGUUID, &v.Alias, &v.Link, &v.Switch, &v.CPU, &v.Core, &v.ConnectX,
	}
}

func encodeDevice(e *encoder, v *collector.Device) {
	for _, s := range deviceTexts(v) {
		e.text(*s, maxText)
	}
	e.uint(uint64(v.Level))
	encodeLabels(e, v.Facts, maxFacts)
}

func decodeDevice(d *decoder, v *collector.Device) {
	for _, s := range deviceTexts(v) {
		*s = d.text(maxText)
	}
	v.Level = field.Level(d.below(1 << 8))
	v.Facts = decodeLabels(d, maxFacts)
}

func encodeLabels(e *encoder, labels []collector.Label, most int) {
	labels = labels[:min(len(labels), most)]
	e.uint(uint64(len(labels)))
	for _, l := range labels {
		e.text(l.Name, maxName)
		e.text(l.Value, maxText)
	}
}

func decodeLabels(d *decoder, most int) []collector.Label {
	n := d.count(most, 2)
	if n == 0 {
		return nil
	}
	out := make([]collector.Label, n)
	for i := range out {
		out[i] = collector.Label{Name: d.text(maxName), Value: d.text(maxText)}
	}
	return out
}

// memory answers a source; the ring's descriptor comes with it unless there is a
// problem.
type memory struct {
	id      uint64
	problem string
}

func (m *memory) encode(e *encoder) {
	e.uint(m.id)
	e.text(m.problem, maxText)
}

func (m *memory) decode(d *decoder) {
	m.id = d.uint()
	m.problem = d.text(maxText)
}

// service lists the sources in service, in the collector's order. Those with
// smaller ids than the largest of them that are not in it are gone for good.
type service struct{ sources []inService }

type inService struct {
	id      uint64
	version uint64 // of its field list
}

func (m *service) encode(e *encoder) {
	e.uint(uint64(len(m.sources)))
	for _, s := range m.sources {
		e.uint(s.id)
		e.uint(s.version)
	}
}

func (m *service) decode(d *decoder) {
	m.sources = make([]inService, d.count(maxSources, 2))
	for i := range m.sources {
		m.sources[i] = inService{d.uint(), d.uint()}
	}
}

// release names sources that will never be in service.
type release struct{ ids []uint64 }

func (m *release) encode(e *encoder) {
	e.uint(uint64(len(m.ids)))
	for _, id := range m.ids {
		e.uint(id)
	}
}

func (m *release) decode(d *decoder) {
	m.ids = make([]uint64, d.count(maxSources, 1))
	for i := range m.ids {
		m.ids[i] = d.uint()
	}
}

// status is the state of the collector. Of the devices in service only those are
// named that are not simply up; the times of their samples are in the rings.
type status struct {
	up      bool
	cause   string
	reason  string
	devices []deviceState
	missing []sampler.DeviceStatus // that Open no longer finds
}

// deviceState is the state of a device of a source in service.
type deviceState struct {
	source uint64
	device int
	state  sampler.State
	cause  string
	reason string
}

func (m *status) encode(e *encoder) {
	e.bool(m.up)
	e.text(m.cause, maxName)
	e.text(m.reason, maxText)
	m.devices = m.devices[:min(len(m.devices), maxStatus)]
	e.uint(uint64(len(m.devices)))
	for i := range m.devices {
		v := &m.devices[i]
		e.uint(v.source)
		e.uint(uint64(v.device))
		e.uint(uint64(v.state))
		e.text(v.cause, maxName)
		e.text(v.reason, maxText)
	}
	m.missing = m.missing[:min(len(m.missing), maxDevices)]
	e.uint(uint64(len(m.missing)))
	for i := range m.missing {
		v := &m.missing[i]
		encodeDevice(e, &v.Device)
		e.uint(uint64(v.State))
		e.text(string(v.Cause), maxName)
		e.text(v.Reason, maxText)
		e.int(unixNano(v.LastSample))
	}
}

func (m *status) decode(d *decoder) {
	m.up = d.bool()
	m.cause = d.cause()
	m.reason = d.text(maxText)
	m.devices = make([]deviceState, d.count(maxStatus, 5))
	for i := range m.devices {
		m.devices[i] = deviceState{
			d.uint(), int(d.below(maxDevices)), sampler.State(d.below(uint64(sampler.LastState) + 1)),
			d.cause(), d.text(maxText),
		}
	}
	m.missing = make([]sampler.DeviceStatus, d.count(maxDevices, deviceBytes+4))
	for i := range m.missing {
		v := &m.missing[i]
		decodeDevice(d, &v.Device)
		v.State = sampler.State(d.below(uint64(sampler.LastState) + 1))
		v.Cause = sampler.Cause(d.cause())
		v.Reason = d.text(maxText)
		if t := d.int(); t != 0 {
			v.LastSample = time.Unix(0, t)
		}
	}
}

// cause reads a word that becomes a label's value: a short one of ours.
func (d *decoder) cause() string {
	s := d.text(32)
	for _, r := range s {
		if (r < 'a' || r > 'z') && r != '_' {
			d.fail("%q is no cause", s)
			return ""
		}
	}
	return s
}

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// logEntry is a line of the child's log.
type logEntry struct {
	level   int // zapcore.Level
	time    int64
	name    string
	text    string
	fields  []logField
	dropped uint64 // entries that did not fit before this one
}

// logField is a field of a line; number marks a value that is written without
// quotes.
type logField struct {
	key, value string
	number     bool
}

func (f logField) field() zap.Field {
	if f.number {
		if n, err := strconv.ParseInt(f.value, 10, 64); err == nil {
			return zap.Int64(f.key, n)
		}
		if v, err := strconv.ParseFloat(f.value, 64); err == nil {
			return zap.Float64(f.key, v)
		}
	}
	return zap.String(f.key, f.value)
}

func (m *logEntry) encode(e *encoder) {
	e.int(int64(m.level))
	e.int(m.time)
	e.text(m.name, maxName)
	e.text(m.text, maxMessage)
	m.fields = m.fields[:min(len(m.fields), maxLogFields)]
	e.uint(uint64(len(m.fields)))
	for _, f := range m.fields {
		e.text(f.key, maxName)
		e.text(f.value, maxText)
		e.bool(f.number)
	}
	e.uint(m.dropped)
}

func (m *logEntry) decode(d *decoder) {
	m.level = int(d.int())
	m.time = d.int()
	m.name = d.text(maxName)
	m.text = d.text(maxMessage)
	m.fields = make([]logField, d.count(maxLogFields, 3))
	for i := range m.fields {
		m.fields[i] = logField{d.text(maxName), d.text(maxText), d.bool()}
	}
	m.dropped = d.uint()
}

// empty is a message without content.
type empty struct{}

func (empty) encode(*encoder) {}
func (empty) decode(*decoder) {}

// message is what a frame holds.
type message interface {
	encode(*encoder)
	decode(*decoder)
}

// unmarshal reads a payload into m.
func unmarshal(b []byte, m message) error {
	d := &decoder{b: b}
	m.decode(d)
	return d.end()
}

func marshal(m message) []byte {
	var e encoder
	m.encode(&e)
	return e.b
}
