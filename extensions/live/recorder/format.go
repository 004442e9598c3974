package recorder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// A recording is lines of JSON, compressed by zstd: a Header, a line for each series with
// its samples in chunks of Prometheus' XOR encoding, and a line that says how many there
// were. Without the last one the file is not whole. The header's first line can be read
// with zstd -dc FILE | head -n 1.

// format is the version of what is in a file.
const format = 1

// Limits of a file, for the writer and for readers of files of any origin.
const (
	maxFile    = 256 << 20 // bytes of a file
	maxLine    = 8 << 20   // bytes of a line
	maxContent = 512 << 20 // bytes of all lines
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
	Text     string        `json:"text"` // of what set it off
	Version  string        `json:"version"`
	Hostname string        `json:"hostname,omitempty"`
	Lists    []string      `json:"lists"` // field lists in service, as CSV
	Devices  []Device      `json:"devices"`
	Node     apiv1.Devices `json:"node"` // states, users and processes when it was written
	Events   []apiv1.Event `json:"events,omitempty"`
}

// Device is a device that had samples.
type Device struct {
	Collector string           `json:"collector"`
	List      int              `json:"list"` // index into Header.Lists
	Interval  time.Duration    `json:"interval_ns"`
	Device    collector.Device `json:"device"`
}

// seriesLine is a series in a file.
type seriesLine struct {
	Device   string            `json:"device"`
	Field    field.ID          `json:"field"`
	Name     string            `json:"name,omitempty"` // of the field, for people
	Unit     string            `json:"unit,omitempty"`
	Labels   []collector.Label `json:"labels,omitempty"`
	Buffered bool              `json:"buffered,omitempty"`
	Chunks   [][]byte          `json:"chunks"`
}

// endLine is the last line.
type endLine struct {
	Series  int `json:"series"`
	Samples int `json:"samples"`
	LeftOut int `json:"left_out,omitempty"` // series, because of a limit
}

// Series is the samples of a series: times are Unix ms and ascend (those of events can be equal).
type Series struct {
	history.Series
	Times  []int64
	Values []float64
}

// Samples returns the times and values.
func (s *Series) Samples() iter.Seq2[int64, float64] {
	return func(yield func(int64, float64) bool) {
		for i, at := range s.Times {
			if !yield(at, s.Values[i]) {
				return
			}
		}
	}
}

// Recording is a file that was read.
type Recording struct {
	Header
	Fields []field.List // as Lists
	Series []Series
}

// write writes a recording: of each series, its samples from the header's time From to
// before Until.
func write(to io.Writer, h *Header, all []history.Series, samples func(history.Series) iter.Seq2[int64, float64]) error {
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20))
	if err != nil {
		return err
	}
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	err = e.Encode(h)
	end := endLine{}
	for _, s := range all {
		if err != nil {
			break
		}
		n := 0
		line := seriesLine{Device: s.Device, Field: s.Field, Labels: s.Labels, Buffered: s.Buffered}
		line.Chunks = history.Encode(func(yield func(int64, float64) bool) {
			for at, v := range samples(s) {
				if n++; end.Samples+n > maxSamples || !yield(at, v) {
					return
				}
			}
		})
		switch {
		case n == 0:
			continue
		case end.Samples+n > maxSamples || end.Series == maxSeries:
			end.LeftOut++
			continue
		}
		if d, ok := field.ByID(s.Field); ok {
			line.Name, line.Unit = d.Name, d.Unit
		}
		end.Series++
		end.Samples += n
		err = e.Encode(&line)
	}
	if err == nil {
		err = e.Encode(struct {
			End endLine `json:"end"`
		}{end})
	}
	return errors.Join(err, z.Close())
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

// next decodes the next line.
func (r *reader) next(to any) error {
	r.line++
	r.text = r.text[:0]
	for {
		part, err := r.r.ReadSlice('\n')
		r.text = append(r.text, part...)
		r.left -= len(part)
		switch {
		case len(r.text) > maxLine || r.left < 0:
			return r.fail(errors.New("it is larger than a recording can be"))
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return r.fail(io.ErrUnexpectedEOF)
		case err != nil:
			return r.fail(err)
		}
		break
	}
	d := json.NewDecoder(bytes.NewReader(r.text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return r.fail(err)
	}
	return nil
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
	h := new(Header)
	return h, r.header(h)
}

// header reads and checks the first line.
func (r *reader) header(h *Header) error {
	var version struct {
		Format int `json:"format"`
	}
	var raw json.RawMessage
	if err := r.next(&raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &version); err != nil {
		return r.fail(err)
	}
	if version.Format != format {
		return fmt.Errorf("read recording: its format is %d, this version of warpgauge reads %d", version.Format, format)
	}
	if err := json.Unmarshal(raw, h); err != nil {
		return r.fail(err)
	}
	span := h.Until.Sub(h.From)
	if span <= 0 || span > maxSpan || len(h.Devices) > maxDevices || len(h.Lists) > len(h.Devices) {
		return r.fail(fmt.Errorf("%v with %d devices and %d lists is not what a recording can be", span, len(h.Devices), len(h.Lists)))
	}
	for i := range h.Devices {
		if d := &h.Devices[i]; d.List < 0 || d.List >= len(h.Lists) || d.Interval <= 0 {
			return r.fail(fmt.Errorf("device %q has list %d and interval %v", d.Device.ID, d.List, d.Interval))
		}
	}
	return nil
}

// Read reads a recording of any origin. It takes bounded memory, and refuses what is not
// whole.
func Read(from io.Reader) (*Recording, error) {
	r, err := newReader(from)
	if err != nil {
		return nil, err
	}
	defer r.close()
	out := new(Recording)
	if err := r.header(&out.Header); err != nil {
		return nil, err
	}
	for i, text := range out.Lists {
		list, _, err := field.Parse(strings.NewReader(text), field.ParseOptions{File: fmt.Sprintf("list %d of the recording", i)})
		if err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
		out.Fields = append(out.Fields, list)
	}
	devices := make(map[string]bool, len(out.Devices))
	for i := range out.Devices {
		devices[out.Devices[i].Device.ID] = true
	}
	for samples := 0; ; {
		var line struct {
			seriesLine
			End *endLine `json:"end"`
		}
		if err := r.next(&line); err != nil {
			return nil, err
		}
		if e := line.End; e != nil {
			if e.Series != len(out.Series) || e.Samples != samples {
				return nil, r.fail(fmt.Errorf("there should be %d series with %d samples, there are %d with %d", e.Series, e.Samples, len(out.Series), samples))
			}
			return out, nil
		}
		if !devices[line.Device] || len(out.Series) == maxSeries {
			return nil, r.fail(fmt.Errorf("series of device %q, which the recording does not have", line.Device))
		}
		s, err := line.decode(maxSamples-samples, out.From.UnixMilli(), out.Until.UnixMilli())
		if err != nil {
			return nil, r.fail(err)
		}
		samples += len(s.Times)
		out.Series = append(out.Series, s)
	}
}

// decode returns the samples, of which there may be at most so many.
func (l *seriesLine) decode(most int, from, until int64) (Series, error) {
	s := Series{Series: history.Series{Device: l.Device, Field: l.Field, Labels: l.Labels, Buffered: l.Buffered}}
	for _, c := range l.Chunks {
		times, values, err := history.Decode(c)
		if err != nil {
			return s, err
		}
		if len(s.Times)+len(times) > most {
			return s, errors.New("it has more samples than a recording can have")
		}
		s.Times, s.Values = append(s.Times, times...), append(s.Values, values...)
	}
	last := from
	for _, at := range s.Times {
		if at < last || at >= until {
			return s, fmt.Errorf("a sample of %q at %d is not in its order", l.Device, at)
		}
		last = at
	}
	if len(s.Times) == 0 {
		return s, fmt.Errorf("a series of %q has no samples", l.Device)
	}
	s.Last = last
	return s, nil
}
