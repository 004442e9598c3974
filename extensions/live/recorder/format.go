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

	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// A recording is OpenMetrics with time stamps, compressed by zstd. Prometheus' parser refuses other comments than those of
// OpenMetrics, so the parts in JSON are the help texts of two families without samples:
//
//	# HELP warpgauge_recording HEADER
//	the families of the page
//	warpgauge_recording_reading{…}, the readings that the page does not show
//	# HELP warpgauge_recording_series TRAILER
//	# EOF
//
// The trailer leads from the series of the text to those of the header. A blank reading has no sample.
const (
	headPrefix    = "# HELP warpgauge_recording "
	trailerPrefix = "# HELP warpgauge_recording_series "
	readingHead   = "# HELP warpgauge_recording_reading Readings that no series of the page shows, in the catalogue's unit.\n# TYPE warpgauge_recording_reading gauge\n"
	end           = "# EOF\n"
)

// format is the version of the parts in JSON. Files of version 1 had another form.
const format = 2

// Limits of a file, for the writer and for readers of files of any origin.
const (
	maxFile    = 256 << 20 // bytes of a file
	maxLine    = 32 << 20  // bytes of a line
	maxContent = 4 << 30   // bytes of all lines
	maxSamples = 8 << 20   // of all series
	maxSeries  = 1 << 17
	maxDevices = 1 << 14
	maxWindow  = 16 << 20 // bytes that the decoder looks back
	maxSpan    = 24 * time.Hour
)

// Header says what a recording is of.
type Header struct {
	Format int `json:"format"`
	apiv1.Recording
	Text     string           `json:"text"` // of the trigger
	Version  string           `json:"version"`
	Hostname string           `json:"hostname,omitempty"`
	Lists    []string         `json:"lists"` // field lists in service, as CSV
	Devices  []Device         `json:"devices"`
	Series   []history.Series `json:"series"`
	Node     apiv1.Devices    `json:"node"` // states, users and processes when it was written
	Health   *apiv1.Health    `json:"health,omitempty"`
	Events   []apiv1.Event    `json:"events,omitempty"`
}

// Device is a device that had samples.
type Device struct {
	Collector string           `json:"collector"`
	List      int              `json:"list"` // index into Header.Lists
	Interval  time.Duration    `json:"interval_ns"`
	Device    collector.Device `json:"device"`
}

// trailer is the end of a file.
type trailer struct {
	Series  []int `json:"series"`             // by series of the text: index into Header.Series, or -1 for a reading that another series of the text has, too
	LeftOut int   `json:"left_out,omitempty"` // series without all their samples, because there are too many
}

// Sample is one of a series. Its time is in Unix ms.
type Sample struct {
	Time  int64
	Value float64
}

// Recording is a file that was read.
type Recording struct {
	Header
	Fields  []field.List // as Lists
	Samples [][]Sample   // by series of the header; times ascend
}

// view returns a source for each device that has series, and for each of its columns the index of the series. Samples of
// a driver's buffer are not columns.
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

// writer writes the samples of a recording.
type writer struct {
	h       *Header
	samples func(history.Series) iter.Seq2[int64, float64]
	left    int          // samples that may follow
	cut     map[int]bool // series that lack some
	trailer trailer
}

// write writes a recording: of each series, its samples from the header's time From to before Until. lists are the
// header's. It returns how many series are not whole, because there are too many samples.
func write(to io.Writer, h *Header, lists []field.List, page exposition.Options, samples func(history.Series) iter.Seq2[int64, float64]) (leftOut int, err error) {
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20))
	if err != nil {
		return 0, err
	}
	b := bufio.NewWriterSize(&limited{to: z, left: maxContent}, 64<<10)
	b.WriteString(comment(headPrefix, h)) //nolint:errcheck,gosec // Flush returns it, here and below
	w := writer{h: h, samples: samples, left: maxSamples, cut: make(map[int]bool), trailer: trailer{Series: []int{}}}
	v, series := h.view(lists)
	shown := make(map[int]bool)
	for _, a := range exposition.WriteArchive(b, v, page, func(source, column int) iter.Seq2[int64, float64] { return w.bounded(series[source][column]) }) {
		at := series[a.Source][a.Column]
		if _, known := scaleOf(&v.Sources[a.Source].Fields, a.Family); !known || a.Repeated {
			at = -1 // a name without a row of the list cannot be read back
		}
		shown[at] = true
		w.trailer.Series = append(w.trailer.Series, at)
	}
	w.readings(b, shown)
	w.trailer.LeftOut = len(w.cut)
	b.WriteString(comment(trailerPrefix, &w.trailer)) //nolint:errcheck,gosec // as above
	b.WriteString(end)                                //nolint:errcheck,gosec // as above
	return len(w.cut), errors.Join(b.Flush(), z.Close())
}

// bounded returns the samples of a series, while there are not too many.
func (w *writer) bounded(series int) iter.Seq2[int64, float64] {
	return func(yield func(int64, float64) bool) {
		for at, v := range w.samples(w.h.Series[series]) {
			if w.left--; w.left < 0 {
				w.cut[series] = true
				return
			}
			if !yield(at, v) {
				return
			}
		}
	}
}

// readings writes the series that are not shown. Events of one instant are 1 ms apart, as Prometheus has one sample of a
// series at a time.
func (w *writer) readings(b *bufio.Writer, shown map[int]bool) {
	line, head := []byte(nil), readingHead
	for i := range w.h.Series {
		if shown[i] {
			continue
		}
		begin, last := readingText(&w.h.Series[i]), int64(math.MinInt64)
		for at, v := range w.bounded(i) {
			if math.IsNaN(v) {
				continue
			}
			if last == math.MinInt64 {
				w.trailer.Series = append(w.trailer.Series, i)
			}
			last = max(at, last+1)
			b.WriteString(head) //nolint:errcheck,gosec // write's Flush returns it
			head = ""
			line = exposition.AppendSample(append(line[:0], begin...), v, last)
			b.Write(line) //nolint:errcheck,gosec // as above
		}
	}
}

// readingText returns name and labels of a series that the page does not show.
func readingText(s *history.Series) string {
	name := strconv.Itoa(int(s.Field))
	if d, ok := field.ByID(s.Field); ok {
		name = d.Name
	}
	var labels []string
	for _, l := range s.Labels {
		labels = append(labels, l.Name+"="+l.Value)
	}
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace
	text := fmt.Sprintf(`warpgauge_recording_reading{device="%s",field="%s"`, escape(s.Device), name)
	if len(labels) > 0 {
		text += fmt.Sprintf(`,labels="%s"`, escape(strings.Join(labels, " ")))
	}
	if s.Buffered {
		text += `,buffered="true"`
	}
	return text + "} "
}

// comment returns a line with JSON whose escapes are all of the form \uXXXX, which OpenMetrics leaves as they are.
func comment(prefix string, v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("recorder: encode: " + err.Error()) // all types are our own
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

// reader reads the lines of a file of any origin, within limits.
type reader struct {
	z    *zstd.Decoder
	r    *bufio.Reader
	line int
	left int
	text []byte
}

func newReader(from io.Reader) (*reader, error) {
	z, err := zstd.NewReader(io.LimitReader(from, maxFile), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	return &reader{z: z, r: bufio.NewReaderSize(z, 64<<10), left: maxContent}, nil
}

func (r *reader) close() { r.z.Close() }

// next returns the next line without its end, until the next call.
func (r *reader) next() ([]byte, error) {
	r.line++
	r.text = r.text[:0]
	for {
		part, err := r.r.ReadSlice('\n')
		r.text = append(r.text, part...)
		r.left -= len(part)
		switch {
		case len(r.text) > maxLine || r.left < 0:
			return nil, r.fail(errors.New("it is larger than a recording can be"))
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil, r.fail(io.ErrUnexpectedEOF)
		case err != nil:
			return nil, r.fail(err)
		}
		return r.text[:len(r.text)-1], nil
	}
}

func (r *reader) fail(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("read recording: it ends within line %d: the file is not whole", r.line)
	case r.line == 1 && (errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, zstd.ErrCRCMismatch)):
		return fmt.Errorf("read recording: the file is not one: %w", err)
	}
	return fmt.Errorf("read recording: line %d: %w", r.line, err)
}

// ReadHeader reads the beginning of a file.
func ReadHeader(from io.Reader) (*Header, error) {
	r, err := newReader(from)
	if err != nil {
		return nil, err
	}
	defer r.close()
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
	if span <= 0 || span > maxSpan || len(h.Devices) > maxDevices || len(h.Lists) > len(h.Devices) || len(h.Series) > maxSeries {
		return nil, r.fail(fmt.Errorf("%v with %d devices, %d lists and %d series is not what a recording can be", span, len(h.Devices), len(h.Lists), len(h.Series)))
	}
	devices := make(map[string]bool, len(h.Devices))
	for i := range h.Devices {
		d := &h.Devices[i]
		if d.List < 0 || d.List >= len(h.Lists) || d.Interval <= 0 || devices[d.Device.ID] {
			return nil, r.fail(fmt.Errorf("device %q, which may be there once, has list %d and interval %v", d.Device.ID, d.List, d.Interval))
		}
		devices[d.Device.ID] = true
	}
	for i := range h.Series {
		if s := &h.Series[i]; !devices[s.Device] {
			return nil, r.fail(fmt.Errorf("series of device %q, which the recording does not have", s.Device))
		}
	}
	return h, nil
}

// part is the samples of a series of the text.
type part struct {
	metric  string
	samples []Sample
}

// Read reads a recording of any origin. It takes bounded memory, and refuses a file that is not whole.
func Read(from io.Reader) (*Recording, error) {
	r, err := newReader(from)
	if err != nil {
		return nil, err
	}
	defer r.close()
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
	parts, t, err := r.parts(out.From.UnixMilli(), out.Until.UnixMilli())
	if err != nil {
		return nil, err
	}
	if len(t.Series) != len(parts) {
		return nil, r.fail(fmt.Errorf("there should be %d series, there are %d", len(t.Series), len(parts)))
	}
	if err := out.join(parts, t); err != nil {
		return nil, r.fail(err)
	}
	return out, nil
}

// parts reads all lines after the first one, whose times are from a time to before another.
func (r *reader) parts(from, until int64) (parts []part, t trailer, err error) {
	var current []byte // name and labels
	for samples := 0; ; {
		line, err := r.next()
		if err != nil {
			return nil, t, err
		}
		if text, ok := bytes.CutPrefix(line, []byte(trailerPrefix)); ok {
			if err := json.Unmarshal(text, &t); err != nil {
				return nil, t, r.fail(err)
			}
			continue
		}
		if string(line) == strings.TrimSuffix(end, "\n") {
			if _, err := r.r.ReadByte(); !errors.Is(err, io.EOF) { // which has the decoder check the sum
				return nil, t, r.fail(cmp.Or(err, errors.New("something follows the end")))
			}
			return parts, t, nil
		}
		if len(line) > 0 && line[0] == '#' {
			continue
		}
		series, s, ok := parseSample(line)
		if !ok || s.Time < from || s.Time >= until+maxShift || samples == maxSamples || len(parts) > 2*maxSeries {
			return nil, t, r.fail(fmt.Errorf("%.100q is not a sample of the recorded time, or one too many", line))
		}
		samples++
		if !bytes.Equal(series, current) {
			current = append(current[:0], series...)
			name, _, _ := bytes.Cut(series, []byte("{"))
			parts = append(parts, part{metric: string(name)})
		}
		p := &parts[len(parts)-1]
		p.samples = append(p.samples, s)
	}
}

// maxShift is how far after its end a recording may have an event, ms: one of several of the last instant.
const maxShift = 1000

// parseSample splits a line.
func parseSample(line []byte) (series []byte, s Sample, ok bool) {
	at := bytes.LastIndexByte(line, ' ')
	value := bytes.LastIndexByte(line[:max(at, 0)], ' ')
	if value < 0 {
		return nil, s, false
	}
	v, err := strconv.ParseFloat(string(line[value+1:at]), 64)
	seconds, errAt := strconv.ParseFloat(string(line[at+1:]), 64)
	s = Sample{int64(math.Round(seconds * 1000)), v}
	return line[:value], s, err == nil && errAt == nil && math.Abs(seconds) < 1<<40
}

// join gives each series of the header its samples. The XIDs of a device are several series of the text.
func (r *Recording) join(parts []part, t trailer) error {
	lists := make(map[string]*field.List, len(r.Devices))
	for i := range r.Devices {
		lists[r.Devices[i].Device.ID] = &r.Fields[r.Devices[i].List]
	}
	joined := make(map[int]bool)
	for i, at := range t.Series {
		if at == -1 {
			continue
		}
		if at < 0 || at >= len(r.Series) {
			return fmt.Errorf("series %d of the text is said to be number %d of %d", i, at, len(r.Series))
		}
		scale, _ := scaleOf(lists[r.Series[at].Device], parts[i].metric)
		for k := range parts[i].samples {
			s := &parts[i].samples[k]
			s.Value = scale.Reading(s.Value)
		}
		if r.Samples[at] == nil {
			r.Samples[at] = parts[i].samples
			continue
		}
		r.Samples[at] = append(r.Samples[at], parts[i].samples...)
		joined[at] = true
	}
	for at, samples := range r.Samples {
		byTime := func(a, b Sample) int { return cmp.Compare(a.Time, b.Time) }
		if joined[at] {
			slices.SortStableFunc(samples, byTime)
		}
		if !slices.IsSortedFunc(samples, byTime) {
			return fmt.Errorf("samples of %q are not in their order", r.Series[at].Device)
		}
	}
	return nil
}
