package api

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// Limits of streams.
const (
	maxStreams      = 128
	maxHeld         = 128 << 20 // bytes of all streams, as feed.size estimates them
	maxColumns      = 20_000
	maxPart         = 25_000 // values in rows after which a new part begins
	minInterval     = 100 * time.Millisecond
	maxInterval     = 10 * time.Second // a ring of 10 ms ticks holds that long
	defaultInterval = time.Second
	heartbeat       = 5 * time.Second // send a comment after that long without an event
	devicesInterval = time.Second
)

// streams counts the clients of /api/v1/stream. Each handler reads the rings itself, so a slow client delays
// no other; it loses rows that are overwritten.
type streams struct {
	api     *API
	open    atomic.Int64
	held    atomic.Int64    // bytes
	closing context.Context // ends with the server
	close   context.CancelFunc
}

// serve sends events until the client leaves or does not read for sendTimeout, or the server stops.
func (s *streams) serve(w http.ResponseWriter, r *http.Request, q *query) error {
	interval, err := intervalOf(q)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return nil
	}
	defer s.open.Add(-1)
	switch {
	case s.open.Add(1) > maxStreams:
		return busy(fmt.Sprintf("there are %d streams already: close one, or ask for /api/v1/samples from time to time", maxStreams))
	case s.closing.Err() != nil:
		return busy("the exporter is shutting down")
	}
	end, err := s.api.begin(r.Context())
	if err != nil {
		return err
	}
	f, part, err := newFeed(s.api, q)
	end()
	if err != nil {
		return err
	}
	size := f.size(part)
	defer func() { s.held.Add(-size) }()
	if s.held.Add(size) > maxHeld {
		return busy("the streams need too much memory: close one, or ask for fewer series with device= and field=")
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // otherwise the server's read timeout would end the request; a test's recorder has no deadlines
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // stops proxies from buffering rows
	send := func(part []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(sendTimeout)) // see above
		_, err := w.Write(part)                              //nolint:gosec // events with JSON, which browsers do not render
		if err == nil {
			err = rc.Flush()
		}
		_ = rc.SetWriteDeadline(time.Time{}) // with HTTP/2, a deadline would end an idle stream
		return err == nil                    // an error means that the client has gone or is too slow
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	sent, more := time.Now(), false
	for {
		switch {
		case len(part) > 0:
			if !send(part) {
				return nil
			}
			sent = time.Now()
		case time.Since(sent) >= heartbeat:
			part = []byte(":\n\n")
			continue
		}
		if !more {
			select {
			case <-r.Context().Done():
				return nil
			case <-s.closing.Done():
				send(problemEvent("the exporter is shutting down"))
				return nil
			case <-tick.C:
			}
		}
		select {
		case s.api.building <- struct{}{}: // streams and answers share the tokens
		case <-r.Context().Done():
			return nil
		}
		part, more, err = f.next()
		<-s.api.building
		if grown := f.size(part) - size; err == nil && grown > 0 { // devices have come
			size += grown
			if s.held.Add(grown) > maxHeld {
				err = errors.New("the streams need too much memory: close one")
			}
		}
		if err != nil {
			send(problemEvent(err.Error()))
			return nil
		}
	}
}

func problemEvent(why string) []byte {
	p := busy(why)
	complete(p)
	return appendEvent(nil, "problem", p)
}

func intervalOf(q *query) (time.Duration, error) {
	text, err := q.one("interval")
	if text == "" {
		return defaultInterval, err
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= minInterval.Seconds() && seconds <= maxInterval.Seconds()) {
		return 0, badQuery("interval is %q: write seconds from %v to %v", text, minInterval.Seconds(), maxInterval.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// feed produces the events for one client.
type feed struct {
	o        *Options
	chosen   *chosen
	view     *view.View
	cursor   rows.Cursor // private: a stream reads at its own pace, and the ring is its buffer
	columns  uint64      // hash of the last event "columns"
	taps     []*streamTap
	sent     map[string]uint64 // hash of the last sent data by event and device
	compared time.Time         // last comparison of devices and verdicts
	verdicts *events.Snapshot  // last compared verdicts
	event    uint64            // number of the last event
	row      rows.Row
}

// streamTap maps the cells of one source to stream columns.
type streamTap struct {
	first int // first stream column
	cells []streamCell
}

type streamCell struct {
	cell, device int
	scale        field.Scale
}

// newFeed returns a feed and its first part.
func newFeed(a *API, q *query) (f *feed, part []byte, err error) {
	n := newNode(&a.o)
	c, err := n.choose(q)
	if err != nil {
		return nil, nil, err
	}
	f = &feed{o: &a.o, chosen: c, sent: map[string]uint64{}, event: a.o.Events.Last()}
	part, err = f.bind(nil, n)
	f.cursor.Skip()
	f.compare(nil, n) // store the baseline, because streams send only changes
	return f, part, err
}

// next returns the events since the last call. more reports whether rows are left that did not fit.
func (f *feed) next() (part []byte, more bool, err error) {
	now := f.o.Now()
	due := now.Sub(f.compared) >= devicesInterval || now.Before(f.compared)
	if v := f.o.Board.Load(); v != f.view || due {
		n := newNode(f.o)
		if n.view != f.view {
			part, _ = f.rows(part) // the last rows of removed sources
			if part, err = f.bind(part, n); err != nil {
				return nil, false, err
			}
		}
		part = f.compare(part, n)
	}
	part, more = f.rows(part)
	for _, e := range f.o.Events.after(f.event) {
		f.event = e.number
		if e.Device == "" || f.chosen.device(e.Device) {
			part = appendEvent(part, "event", e.Event)
		}
	}
	return part, more, nil
}

// bind replaces the taps for a new View, and appends the columns if they have changed. It keeps the position in rings
// that remain.
func (f *feed) bind(to []byte, n *node) ([]byte, error) {
	shown := []apiv1.StreamColumn{}
	f.view, f.taps = n.view, nil
	for _, s := range f.cursor.Bind(n.view, n.now) {
		t := &streamTap{first: len(shown)}
		if shown = f.tap(t, shown, n, &s); len(shown) > maxColumns {
			return nil, badQuery("more than %d series: ask for some with device= and field=", maxColumns)
		}
		f.taps = append(f.taps, t)
	}
	columns := appendEvent(nil, "columns", apiv1.StreamColumns{Columns: shown})
	sum := maphash.Bytes(seed, columns)
	if sum != f.columns {
		to = append(to, columns...)
	}
	f.columns = sum
	return to, nil
}

var seed = maphash.MakeSeed()

// size estimates the bytes of a feed whose first part, with all columns, is given.
func (f *feed) size(first []byte) int64 {
	n := len(first) + 16*maxPart + 128*len(f.sent)
	for _, t := range f.taps {
		n += 64 * len(t.cells)
	}
	return int64(n)
}

// tap appends the columns of a source, ordered by device and then by the list.
func (f *feed) tap(t *streamTap, shown []apiv1.StreamColumn, n *node, s *rows.Source) []apiv1.StreamColumn {
	byDevice := make([][]int, len(s.Devices))
	for i := range s.Columns {
		if c := &s.Columns[i]; c.Buffer == 0 {
			byDevice[c.Device] = append(byDevice[c.Device], i)
		}
	}
	for device, columns := range byDevice {
		id := s.Devices[device].ID
		if at, known := n.byID[id]; !s.Supplies[device] || !known || n.devices[at].Source == nil || !f.chosen.device(id) {
			continue
		}
		for i := range s.Fields.Fields {
			x := &s.Fields.Fields[i]
			if _, computed := field.Input(x.Desc); computed || x.Type == field.Label || !f.chosen.field(x.Name) {
				continue
			}
			for _, at := range columns {
				if s.Columns[at].Field == x.Desc.ID {
					shown = append(shown, apiv1.StreamColumn{Device: id, Field: x.Name, Unit: unitOf(x), Labels: pairs(s.Columns[at].Labels)})
					t.cells = append(t.cells, streamCell{at, device, field.NewScale(x.Scale)})
				}
			}
		}
	}
	return shown
}

// rows appends an event with the new rows. more reports whether some did not fit.
func (f *feed) rows(to []byte) (out []byte, more bool) {
	var found apiv1.StreamRows
	values := 0
	for values < maxPart && f.cursor.Next(&f.row) {
		t := f.taps[f.row.Source]
		if len(t.cells) == 0 || !f.row.Devices[t.cells[0].device].New {
			continue // nothing is selected, or another source supplied it
		}
		r := apiv1.StreamRow{Time: f.row.Time / int64(time.Millisecond), First: t.first, Values: make([]*float64, len(t.cells))}
		for i := range t.cells {
			if c := &t.cells[i]; f.row.Devices[c.device].Sampled { // otherwise the cell is old
				r.Values[i] = Number(c.scale.Of(f.row.Cells[c.cell]))
			}
		}
		found.Rows, values = append(found.Rows, r), values+len(r.Values)
	}
	if len(found.Rows) == 0 {
		return to, false
	}
	return appendEvent(to, "rows", found), values >= maxPart
}

// compare appends an event for each changed device, ignoring times, and for each changed verdict.
func (f *feed) compare(to []byte, n *node) []byte {
	f.o.viewed()
	f.compared = n.now
	if len(f.sent) > 4*len(n.devices) { // it also holds removed devices
		clear(f.sent)
	}
	add := func(event, id string, compared, data any) {
		if sum := maphash.Bytes(seed, encode(compared)); sum != f.sent[event+id] {
			f.sent[event+id] = sum
			to = appendEvent(to, event, data)
		}
	}
	verdicts := f.o.Verdicts.Load()
	n.setVerdicts(verdicts)
	for i := range n.devices {
		if f.chosen.device(n.devices[i].Device.ID) {
			now := n.device(&n.devices[i])
			compared := now
			compared.LastSample = nil
			add("devices", now.ID, compared, now)
		}
	}
	if f.verdicts != nil && verdicts.Version == f.verdicts.Version {
		return to
	}
	f.verdicts = verdicts
	for i := range verdicts.Verdicts {
		if v := deviceHealth(&verdicts.Verdicts[i]); f.chosen.device(v.ID) {
			add("health", v.ID, v, v)
		}
	}
	return to
}

// appendEvent appends a server-sent event.
func appendEvent(to []byte, name string, data any) []byte {
	to = append(to, "event: "+name+"\ndata: "...)
	return append(append(to, encode(data)...), '\n')
}
