package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"time"
)

// streamQuery says what stream asks for: as Fields, and how often rows come. No interval
// is the exporter's.
type streamQuery struct {
	Devices, Patterns []string
	Interval          time.Duration
}

// stream calls f for each event until ctx ends, f returns an error, which it returns, or
// the exporter ends it. An event is a *StreamColumns, *StreamRows, *Device or *Event.
func (c *Client) stream(ctx context.Context, s streamQuery, f func(event any) error) error {
	q := url.Values{"device": s.Devices, "field": s.Patterns}
	if s.Interval > 0 {
		q.Set("interval", strconv.FormatFloat(s.Interval.Seconds(), 'f', -1, 64))
	}
	body, err := c.get(ctx, "api/v1/stream", q, "text/event-stream")
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was only read
	var kind string
	var data []byte
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Bytes()
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch {
		case len(line) == 0:
			if len(data) > 0 {
				if err := c.event(kind, data, f); err != nil {
					return err
				}
			}
			kind, data = "", data[:0]
		case string(name) == "event":
			kind = string(value)
		case string(name) == "data":
			data = append(append(data, value...), '\n')
		}
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return c.errorf("the stream has ended: %w", err)
}

// event calls f with an event of a stream, unless it is of a kind that this version does not know.
func (c *Client) event(kind string, data []byte, f func(any) error) error {
	var v any
	switch kind {
	case "columns":
		v = new(StreamColumns)
	case "rows":
		v = new(StreamRows)
	case "devices":
		v = new(Device)
	case "event":
		v = new(Event)
	case "problem":
		v = new(Problem)
	default:
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return c.errorf("read an event %q of the stream: %w", kind, err)
	}
	if p, ended := v.(*Problem); ended {
		return c.errorf("the stream has ended: %w", p)
	}
	return f(v)
}
