package recorder

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// A recording is OpenMetrics with timestamps, compressed with zstd. Prometheus' parser accepts no comments except
// OpenMetrics', so the JSON parts are help texts of two families without samples:
//
//	# HELP warpgauge_recording HEADER
//	the families of the page
//	warpgauge_recording_reading{…}, the readings that the page does not show
//	# HELP warpgauge_recording_series INDEX
//	# EOF
//
// For each series in the text, the index has its number in the header, or -1 if an earlier series has the same reading.
// Blank readings have no sample.
const (
	headPrefix  = "# HELP warpgauge_recording "
	indexPrefix = "# HELP warpgauge_recording_series "
	readingHead = "# HELP warpgauge_recording_reading Readings that no series of the page shows, in the catalogue's unit.\n# TYPE warpgauge_recording_reading gauge\n"
	end         = "# EOF"
)

// format is the version of the JSON parts.
const format = 3

// Limits of a file, for writing and for reading untrusted files.
const (
	maxFile    = 256 << 20 // bytes of a file
	maxLine    = 32 << 20  // bytes of a line
	maxContent = 4 << 30   // bytes of all lines
	maxLines   = 32 << 20
	maxWindow  = 16 << 20 // window size of the decoder, in bytes
	maxSpan    = 24 * time.Hour
)

// Header describes a recording.
type Header struct {
	Format int `json:"format"`
	rows.Recording
	Text     string           `json:"text"` // text of the trigger
	Version  string           `json:"version"`
	Hostname string           `json:"hostname,omitempty"`
	Lists    []string         `json:"lists"` // field lists in service, as CSV
	Devices  []Device         `json:"devices"`
	Series   []rows.Series    `json:"series"`
	Verdicts []events.Verdict `json:"verdicts,omitempty"` // at the time of writing
	Events   []events.Event   `json:"events,omitempty"`
}

// Device is a device with samples, with its state at the time of writing.
type Device struct {
	Collector string           `json:"collector"`
	List      int              `json:"list"` // index into Header.Lists
	Interval  time.Duration    `json:"interval_ns"`
	Device    collector.Device `json:"device"`
	State     string           `json:"state,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	Users     []User           `json:"users,omitempty"`
}

// User is a container that has a device, or a job that runs on it.
type User struct{ Namespace, Pod, PodUID, Container, Job string }

// Sample is a sample of a series. Its time is in Unix ms.
type Sample struct {
	Time  int64
	Value float64
}

// Recording is a decoded file.
type Recording struct {
	Header
	Fields  []field.List // parsed Lists
	Samples [][]Sample   // by the header's series; times ascend
}

// view returns a source for each device with series, and the series index of each column. It omits samples from a
// driver's buffer.
func (h *Header) view(lists []field.List) (v *view.View, series [][]int) {
	of := make(map[string][]int)
	for i := range h.Series {
		s := &h.Series[i]
		if _, known := field.ByID(s.Field); known && !s.Buffered {
			of[s.Device] = append(of[s.Device], i)
		}
	}
	v = &view.View{Version: 1}
	for i := range h.Devices {
		d := &h.Devices[i]
		all := of[d.Device.ID]
		if len(all) == 0 {
			continue
		}
		delete(of, d.Device.ID)
		s := &view.Source{Collector: d.Collector, Fields: lists[d.List], Devices: []collector.Device{d.Device}, Interval: d.Interval}
		for _, at := range all {
			s.Columns = append(s.Columns, collector.Column{Field: h.Series[at].Field, Labels: h.Series[at].Labels})
		}
		v.Sources, series = append(v.Sources, s), append(series, all)
	}
	return v, series
}

// write writes a recording: for each series, the samples from the header's From to before Until. lists are the header's lists.
func write(to io.Writer, h *Header, lists []field.List, page exposition.Options, samples func(rows.Series) iter.Seq2[int64, float64]) error {
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20))
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(&limited{to: z, left: maxContent}, 64<<10) // Flush returns the first error
	fmt.Fprint(b, comment(headPrefix, h))                               //nolint:errcheck // Flush reports it
	v, series := h.view(lists)
	index, shown := []int{}, make(map[int]bool)
	for _, a := range exposition.WriteArchive(b, v, page, func(source, column int) iter.Seq2[int64, float64] { return samples(h.Series[series[source][column]]) }) {
		at := series[a.Source][a.Column]
		if _, known := scaleOf(&v.Sources[a.Source].Fields, a.Family); !known || a.Repeated {
			at = -1 // a name outside the list cannot be read back
		}
		shown[at] = true
		index = append(index, at)
	}
	line, head := []byte(nil), readingHead
	for i := range h.Series {
		if shown[i] {
			continue
		}
		begin, last := readingText(&h.Series[i]), int64(math.MinInt64)
		for at, v := range samples(h.Series[i]) {
			if math.IsNaN(v) {
				continue
			}
			if last == math.MinInt64 {
				index = append(index, i)
			}
			last = max(at, last+1) // Prometheus allows one sample per time, but a device can have several events
			line = exposition.AppendSample(append(append(line[:0], head...), begin...), v, last)
			head = ""
			b.Write(line) //nolint:errcheck,gosec // Flush reports it
		}
	}
	fmt.Fprint(b, comment(indexPrefix, index), end, "\n") //nolint:errcheck // Flush reports it
	return cmp.Or(b.Flush(), z.Close())                   // Close repeats the error of Flush
}

// readingText returns name and labels for a series that the page does not show.
func readingText(s *rows.Series) string {
	name := strconv.Itoa(int(s.Field))
	if d, ok := field.ByID(s.Field); ok {
		name = d.Name
	}
	labels := append([]collector.Label{{Name: "device", Value: s.Device}, {Name: "field", Value: name}}, s.Labels...)
	if s.Buffered {
		labels = append(labels, collector.Label{Name: "buffered", Value: "true"})
	}
	var text []string
	for _, l := range labels {
		text = append(text, l.Name+`="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(l.Value)+`"`)
	}
	return "warpgauge_recording_reading{" + strings.Join(text, ",") + "} "
}

// comment returns a line of JSON with all escapes as \uXXXX, which OpenMetrics does not change.
func comment(prefix string, v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("recorder: encode: " + err.Error()) // all types are ours
	}
	return prefix + strings.NewReplacer(`\\`, `\u005c`, `\"`, `\u0022`, `\n`, `\u000a`).Replace(b.String())
}

// scaleOf returns the scale of a metric's readings.
func scaleOf(list *field.List, metric string) (s field.Scale, known bool) {
	i := slices.IndexFunc(list.Fields, func(f field.Field) bool { return f.Name == metric })
	if i < 0 {
		return field.NewScale(1), false
	}
	return field.NewScale(list.Fields[i].Scale), true
}

// limited is a writer with a limit.
type limited struct {
	to   io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errors.New("the recording is larger than a file can be (--recorder-bytes)")
	}
	return l.to.Write(p)
}

// reader reads the lines of an untrusted file, within limits.
type reader struct {
	*bufio.Scanner
	z    *zstd.Decoder
	line int
}

func newReader(from io.Reader) (*reader, error) {
	z, err := zstd.NewReader(io.LimitReader(from, maxFile), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	r := &reader{Scanner: bufio.NewScanner(io.LimitReader(z, maxContent)), z: z}
	r.Buffer(nil, maxLine)
	r.Split(func(data []byte, _ bool) (int, []byte, error) { return bufio.ScanLines(data, false) }) // ignores an incomplete last line
	return r, nil
}

// next returns the next line, valid until the next call.
func (r *reader) next() ([]byte, error) {
	if r.line++; r.line > maxLines || !r.Scan() {
		return nil, r.fail(cmp.Or(r.Err(), io.ErrUnexpectedEOF))
	}
	return r.Bytes(), nil
}

func (r *reader) fail(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("read recording: it ends within line %d: the file is not whole", r.line)
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("read recording: line %d has more than %d MiB, which no recording has", r.line, maxLine>>20)
	case r.line == 1 && errors.Is(err, zstd.ErrMagicMismatch):
		return fmt.Errorf("read recording: the file is not one: %w", err)
	}
	return fmt.Errorf("read recording: line %d: %w", r.line, err)
}

// ReadHeader reads a file's header.
func ReadHeader(from io.Reader) (*Header, error) {
	r, err := newReader(from)
	if err != nil {
		return nil, err
	}
	defer r.z.Close()
	return r.header()
}

// header reads and checks the first line.
func (r *reader) header() (*Header, error) {
	line, err := r.next()
	if err != nil {
		return nil, err
	}
	text, ok := bytes.CutPrefix(line, []byte(headPrefix))
	if !ok {
		return nil, fmt.Errorf("read recording: the file is not one: it does not begin with %q", headPrefix)
	}
	h := new(Header)
	if err := json.Unmarshal(text, h); err != nil {
		return nil, r.fail(err)
	}
	if h.Format != format {
		return nil, fmt.Errorf("read recording: its format is %d, this version of warpgauge reads %d", h.Format, format)
	}
	span := h.Until.Sub(h.From)
	if span <= 0 || span > maxSpan || len(h.Lists) > len(h.Devices) {
		return nil, r.fail(fmt.Errorf("%v with %d devices and %d lists is not what a recording can be", span, len(h.Devices), len(h.Lists)))
	}
	devices := make(map[string]bool, len(h.Devices))
	for i := range h.Devices {
		d := &h.Devices[i]
		if d.List < 0 || d.List >= len(h.Lists) || d.Interval <= 0 || devices[d.Device.ID] {
			return nil, r.fail(fmt.Errorf("device %q, which may be there once, has list %d and interval %v", d.Device.ID, d.List, d.Interval))
		}
		devices[d.Device.ID] = true
	}
	for i := range h.Verdicts {
		v := &h.Verdicts[i]
		if v.State > events.Failed || slices.ContainsFunc(v.Conditions, func(c events.Condition) bool { return c.State > events.Failed }) {
			return nil, r.fail(fmt.Errorf("the verdict on device %q is not one", v.Device.ID))
		}
	}
	for i := range h.Series {
		if s := &h.Series[i]; !devices[s.Device] {
			return nil, r.fail(fmt.Errorf("series of device %q, which the recording does not have", s.Device))
		}
	}
	return h, nil
}

// part holds the samples of one series in the text.
type part struct {
	metric  string
	samples []Sample
}

// Read reads an untrusted recording with bounded memory. It refuses an incomplete file.
func Read(from io.Reader) (*Recording, error) {
	r, err := newReader(from)
	if err != nil {
		return nil, err
	}
	defer r.z.Close()
	h, err := r.header()
	if err != nil {
		return nil, err
	}
	out := &Recording{Header: *h, Samples: make([][]Sample, len(h.Series))}
	for i, text := range out.Lists {
		list, _, err := field.Parse(strings.NewReader(text), field.ParseOptions{File: fmt.Sprintf("list %d of the recording", i)})
		if err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
		out.Fields = append(out.Fields, list)
	}
	if err := out.read(r); err != nil {
		return nil, err
	}
	return out, nil
}

// read reads all lines after the first.
func (r *Recording) read(from *reader) error {
	var parts []part
	var current []byte // name and labels
	var index []int
	for {
		line, err := from.next()
		if err != nil {
			return err
		}
		if text, ok := bytes.CutPrefix(line, []byte(indexPrefix)); ok {
			err = json.Unmarshal(text, &index)
		} else if string(line) == end {
			break
		} else if !bytes.HasPrefix(line, []byte("#")) {
			var series []byte
			var s Sample
			if series, s, err = parseSample(line); err == nil {
				if !bytes.Equal(series, current) {
					current = append(current[:0], series...)
					name, _, _ := bytes.Cut(series, []byte("{"))
					parts = append(parts, part{metric: string(name)})
				}
				p := &parts[len(parts)-1]
				p.samples = append(p.samples, s)
			}
		}
		if err != nil {
			return from.fail(err)
		}
	}
	if from.Scan() || from.Err() != nil { // at the end the decoder verifies the checksum
		return from.fail(cmp.Or(from.Err(), errors.New("something follows the end")))
	}
	if err := r.join(parts, index); err != nil {
		return from.fail(err)
	}
	return nil
}

// parseSample parses a line.
func parseSample(line []byte) (series []byte, s Sample, err error) {
	at := bytes.LastIndexByte(line, ' ')
	value := bytes.LastIndexByte(line[:max(at, 0)], ' ')
	if value < 1 {
		return nil, s, fmt.Errorf("%.100q is not a sample", line)
	}
	v, err := strconv.ParseFloat(string(line[value+1:at]), 64)
	seconds, errAt := strconv.ParseFloat(string(line[at+1:]), 64)
	if err != nil || errAt != nil || !(math.Abs(seconds) < 1<<40) {
		return nil, s, fmt.Errorf("%.100q does not end in a value and a time in seconds", line[value+1:])
	}
	return line[:value], Sample{int64(math.Round(seconds * 1000)), v}, nil
}

// join assigns the samples to the header's series. The XIDs of a device are several series in the text.
func (r *Recording) join(parts []part, index []int) error {
	if len(index) != len(parts) {
		return fmt.Errorf("the index names %d series, the file has %d: it was changed, fetch it from the exporter again", len(index), len(parts))
	}
	lists := make(map[string]*field.List, len(r.Devices))
	for i := range r.Devices {
		lists[r.Devices[i].Device.ID] = &r.Fields[r.Devices[i].List]
	}
	for i, at := range index {
		if at < -1 || at >= len(r.Series) {
			return fmt.Errorf("series %d of the text is said to be number %d of %d", i, at, len(r.Series))
		}
		if at == -1 {
			continue
		}
		scale, _ := scaleOf(lists[r.Series[at].Device], parts[i].metric)
		for _, s := range parts[i].samples {
			r.Samples[at] = append(r.Samples[at], Sample{s.Time, scale.Reading(s.Value)})
		}
	}
	for _, samples := range r.Samples {
		slices.SortStableFunc(samples, func(a, b Sample) int { return cmp.Compare(a.Time, b.Time) })
	}
	return nil
}
