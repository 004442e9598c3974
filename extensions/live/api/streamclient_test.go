package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/extensions/live/apiv1"
)

// streamQuery says what stream asks for: as Fields, and how often rows come. No interval
// is the exporter's.
type streamQuery struct {
	Devices, Patterns []string
	Interval          time.Duration
}

// stream calls f for each event until ctx ends, f returns an error, which it returns, or
// the exporter ends it. An event is a *StreamColumns, *StreamRows, *Device or *Event.
func stream(ctx context.Context, client *http.Client, base string, s streamQuery, f func(event any) error) error {
	q := url.Values{"device": s.Devices, "field": s.Patterns}
	if s.Interval > 0 {
		q.Set("interval", strconv.FormatFloat(s.Interval.Seconds(), 'f', -1, 64))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+Prefix+"stream?"+q.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream's answer is %s", resp.Status)
	}
	var kind string
	var data []byte
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Bytes()
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch {
		case len(line) == 0:
			if len(data) > 0 {
				if err := decodeEvent(kind, data, f); err != nil {
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
	return fmt.Errorf("the stream has ended: %w", err)
}

// decodeEvent calls f with an event of a stream, unless it is of a kind that this version does not know.
func decodeEvent(kind string, data []byte, f func(any) error) error {
	var v any
	switch kind {
	case "columns":
		v = new(apiv1.StreamColumns)
	case "rows":
		v = new(apiv1.StreamRows)
	case "devices":
		v = new(apiv1.Device)
	case "event":
		v = new(apiv1.Event)
	case "problem":
		v = new(apiv1.Problem)
	default:
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read an event %q of the stream: %w", kind, err)
	}
	if p, ended := v.(*apiv1.Problem); ended {
		return fmt.Errorf("the stream has ended: %w", p)
	}
	return f(v)
}

// TestStreamEvents checks what the tests of streams rely on: what stream makes of an answer.
func TestStreamEvents(t *testing.T) {
	value := 1.5
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(": hello\n\nevent: columns\ndata: {\"columns\":[{\"device\":\"GPU-1\",\"field\":\"A\"}]}\n\n" +
			"event: rows\r\ndata: {\"rows\":\r\ndata: [{\"t\":7,\"first\":0,\"v\":[1.5,null]}]}\r\n\r\n" +
			"event: news\ndata: of a later version\n\n" +
			"event: devices\ndata: {\"id\":\"GPU-1\",\"state\":\"lost\"}\n\nid: 1\nevent: event\ndata: {\"kind\":\"xid\"}\n\nevent: rows\ndata: {"))
	}))
	defer s.Close()
	var got []any
	err := stream(t.Context(), s.Client(), s.URL, streamQuery{Patterns: []string{"A"}, Interval: 500 * time.Millisecond}, func(v any) error {
		got = append(got, v)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "the stream has ended: unexpected EOF") {
		t.Errorf("end of the stream: error %v", err)
	}
	want := []any{
		&apiv1.StreamColumns{Columns: []apiv1.StreamColumn{{Device: "GPU-1", Field: "A"}}},
		&apiv1.StreamRows{Rows: []apiv1.StreamRow{{Time: 7, Values: []*float64{&value, nil}}}},
		&apiv1.Device{ID: "GPU-1", State: "lost"},
		&apiv1.Event{Kind: "xid"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events differ (-want +got):\n%s", diff)
	}
	if asked != "field=A&interval=0.5" {
		t.Errorf("asked with %q", asked)
	}
	stop := errors.New("stop")
	if err := stream(t.Context(), s.Client(), s.URL, streamQuery{}, func(any) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("f's error: got %v", err)
	}
}
