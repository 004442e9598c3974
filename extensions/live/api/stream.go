package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/verdict"
	"warpgauge/pkg/view"
)

// Bounds of streams.
const (
	maxStreams      = 128
	maxFeeds        = 32 // streams that ask for different things
	maxColumns      = 20_000
	maxPart         = 1 << 20 // bytes of rows after which another part begins
	maxUnsent       = 4 << 20 // bytes that wait for one client
	unsentParts     = 64      // parts that do
	minInterval     = 100 * time.Millisecond
	maxInterval     = 10 * time.Second // which a ring of 10 ms ticks holds
	defaultInterval = time.Second
	lastTimeout     = time.Second     // for saying why a stream ends
	heartbeat       = 5 * time.Second // a comment is sent if there was nothing else for so long
	devicesInterval = time.Second
)

// streams are the clients of /api/v1/stream. Those that ask for the same share a feed: what
// they get is read and encoded once. Without clients nothing runs.
type streams struct {
	api *API

	mu     sync.Mutex
	feeds  map[string]*feed // by query
	open   int
	closed bool
}

// client is one client of a feed. Its handler sends the parts.
type client struct {
	parts  chan []byte
	unsent atomic.Int64  // bytes in parts
	over   chan struct{} // closed when it is to end
	why    string        // set before that
}

// serve sends events until the client leaves, is too slow, or the server stops.
func (s *streams) serve(w http.ResponseWriter, r *http.Request, q *query) error {
	interval, err := intervalOf(q)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return nil
	}
	c, leave, err := s.join(r.Context(), q, interval)
	if err != nil {
		return err
	}
	defer leave()

	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // else the request ends with the server's read timeout; a recorder has none
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that buffers would hold rows back
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-c.over:
			_ = rc.SetWriteDeadline(time.Now().Add(lastTimeout)) // as above
			p := busy(c.why)
			complete(p)
			_, _ = w.Write(appendEvent(nil, "problem", p)) // an error says that it is too slow for this, too
			return nil
		case part := <-c.parts:
			c.unsent.Add(-int64(len(part)))
			_ = rc.SetWriteDeadline(time.Now().Add(sendTimeout)) // as above
			if _, err := w.Write(part); err != nil {
				return nil // the client has gone or is too slow
			}
			if err := rc.Flush(); err != nil {
				return nil
			}
			_ = rc.SetWriteDeadline(time.Time{}) // with HTTP/2 it would end the stream while there is nothing to send
		}
	}
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

// join adds a client. leave has to be called when it has gone.
func (s *streams) join(ctx context.Context, q *query, interval time.Duration) (c *client, leave func(), err error) {
	end, err := s.api.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	s.mu.Lock()
	defer s.mu.Unlock()
	key := feedKey(q, interval)
	f := s.feeds[key]
	switch {
	case s.closed:
		return nil, nil, busy("the exporter is shutting down")
	case s.open == maxStreams:
		return nil, nil, busy(fmt.Sprintf("there are %d streams already: close one, or ask for /api/v1/samples from time to time", maxStreams))
	case f != nil && f.isOver():
		return nil, nil, busy("the stream of this query is ending: ask again in a second")
	case f == nil && len(s.feeds) == maxFeeds:
		return nil, nil, busy(fmt.Sprintf("there are streams of %d different queries already: close one, or ask for the same devices, fields and interval as another", maxFeeds))
	case f == nil:
		if f, err = s.newFeed(q, interval); err != nil {
			return nil, nil, err
		}
		s.feeds[key] = f
	}
	s.open++
	c = f.add()
	return c, func() { s.leave(key, f, c) }, nil
}

// feedKey is the same for queries that ask for the same.
func feedKey(q *query, interval time.Duration) string {
	sorted := func(name string) []string { return slices.Compact(slices.Sorted(slices.Values(q.Values[name]))) }
	return fmt.Sprintf("%d %q %q", interval, sorted("device"), sorted("field"))
}

func (s *streams) leave(key string, f *feed, c *client) {
	s.mu.Lock()
	s.open--
	last := f.remove(c)
	if last {
		delete(s.feeds, key)
	}
	s.mu.Unlock()
	if last {
		f.cancel()
		<-f.done
	}
}

// close ends all streams and lets none begin.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, f := range s.feeds {
		f.end("the exporter is shutting down")
	}
}

// feed makes what its clients get.
type feed struct {
	api      *API
	chosen   *chosen
	interval time.Duration
	cancel   context.CancelFunc
	done     chan struct{} // closed when run has returned

	mu      sync.Mutex
	over    bool
	clients map[*client]bool // false: it is to end
	columns []byte           // the last event "columns", with which each client begins

	// Of run, and of newFeed before it.
	view     *view.View
	cursor   rows.Cursor // of its own: a stream reads as fast as it is sent, and the ring is its buffer
	shown    []apiv1.StreamColumn
	taps     []*streamTap      // by index of the source; nil: nothing of it is shown
	devices  map[string][]byte // by id: what was sent last
	compared time.Time         // when devices were compared
	verdicts *verdict.Snapshot // compared last
	event    uint64            // number of the last event
	sent     time.Time         // the last part
	row      rows.Row
}

// streamTap leads from the cells of one source to columns of the stream.
type streamTap struct {
	first int // in shown
	cells []streamCell
}

type streamCell struct {
	cell, device int
	scale        field.Scale
}

func (s *streams) newFeed(q *query, interval time.Duration) (*feed, error) {
	n := newNode(&s.api.o)
	c, err := n.choose(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &feed{
		api: s.api, chosen: c, interval: interval, cancel: cancel, done: make(chan struct{}), clients: map[*client]bool{},
		devices: map[string][]byte{}, event: s.api.o.Events.Last(), sent: time.Now(),
		verdicts: s.api.o.Health(),
	}
	if err := f.bind(n); err != nil {
		cancel()
		return nil, err
	}
	f.cursor.Skip()
	f.compare(nil, n)
	go f.run(ctx)
	return f, nil
}

func (f *feed) add() *client {
	c := &client{parts: make(chan []byte, unsentParts), over: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients[c] = true
	c.parts <- f.columns
	c.unsent.Add(int64(len(f.columns)))
	return c
}

// remove reports whether it was the last one.
func (f *feed) remove(c *client) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.clients, c)
	return len(f.clients) == 0
}

// end ends all clients and lets none join.
func (f *feed) end(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	for c := range f.clients {
		f.endLocked(c, why)
	}
}

func (f *feed) endLocked(c *client, why string) {
	if f.clients[c] {
		f.clients[c], c.why = false, why
		close(c.over)
	}
}

func (f *feed) isOver() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// send gives a part to each client. One that has too much before it is ended.
func (f *feed) send(part []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, open := range f.clients {
		if !open {
			continue
		}
		if c.unsent.Add(int64(len(part))) <= maxUnsent {
			select {
			case c.parts <- part:
				continue
			default:
			}
		}
		f.endLocked(c, "the client does not read as fast as rows come: ask for fewer devices or fields")
	}
}

// run makes a part in each interval until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for more := true; more; {
			select {
			case f.api.building <- struct{}{}: // the same turn as for answers
			case <-ctx.Done():
				return
			}
			var part []byte
			var err error
			part, more, err = f.next()
			<-f.api.building
			switch {
			case err != nil:
				f.end(err.Error())
				return
			case len(part) > 0:
				f.sent = time.Now()
				f.send(part)
			case time.Since(f.sent) >= heartbeat:
				f.sent = time.Now()
				f.send([]byte(":\n\n"))
			}
		}
	}
}

// next returns the events since the last call; more says that there are more rows than fit
// into a part.
func (f *feed) next() (part []byte, more bool, err error) {
	now := f.api.o.Now()
	due := now.Sub(f.compared) >= devicesInterval || now.Before(f.compared)
	if v := f.api.o.View(); v != f.view || due {
		n := newNode(&f.api.o)
		if n.view != f.view {
			part, _ = f.rows(part) // the last ones of sources that leave
			before := f.shown
			if err := f.bind(n); err != nil {
				return nil, false, err
			}
			if !slices.EqualFunc(before, f.shown, sameColumn) {
				part = append(part, f.columns...)
			}
		}
		part = f.compare(part, n)
	}
	part, more = f.rows(f.changedVerdicts(part))
	for _, e := range f.api.o.Events.after(f.event) {
		f.event = e.number
		if e.Device == "" || f.chosen.device(e.Device) {
			part = appendEvent(part, "event", e.Event)
		}
	}
	return part, more, nil
}

func sameColumn(a, b apiv1.StreamColumn) bool {
	return a.Device == b.Device && a.Field == b.Field && a.Unit == b.Unit && fmt.Sprint(a.Labels) == fmt.Sprint(b.Labels)
}

// bind replaces the taps by those of a View. A ring that stays is read on from where it was.
func (f *feed) bind(n *node) error {
	f.view, f.taps, f.shown = n.view, nil, []apiv1.StreamColumn{}
	for _, s := range f.cursor.Bind(n.view, n.now) {
		t := &streamTap{first: len(f.shown)}
		if !f.tap(t, n, &s) {
			return badQuery("more than %d series: ask for some with device= and field=", maxColumns)
		}
		f.taps = append(f.taps, t)
	}
	columns := appendEvent(nil, "columns", apiv1.StreamColumns{Columns: f.shown})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.columns = columns
	return nil
}

// tap adds the columns of a source. It reports false if there are too many.
func (f *feed) tap(t *streamTap, n *node, source *rows.Source) bool {
	var columns *sheet // of the source
	for device, supplied := range source.Supplies {
		id := source.Devices[device].ID
		if at, known := n.byID[id]; !supplied || !known || n.devices[at].source == nil || !f.chosen.device(id) {
			continue
		}
		if columns == nil {
			columns = newSheet(source.Source, f.chosen)
		}
		for _, x := range columns.fields {
			for _, at := range columns.byDevice[device][x.Desc.ID] {
				if len(f.shown) == maxColumns {
					return false
				}
				f.shown = append(f.shown, apiv1.StreamColumn{Device: id, Field: x.Name, Unit: unitOf(x), Labels: pairs(source.Columns[at].Labels)})
				t.cells = append(t.cells, streamCell{at, device, field.NewScale(x.Scale)})
			}
		}
	}
	return true
}

// rows appends an event with the rows that are new; more says that some did not fit.
func (f *feed) rows(to []byte) (out []byte, more bool) {
	const head, tail = "event: rows\ndata: {\"rows\":[", "]}\n\n"
	begin := len(to)
	to = append(to, head...)
	for len(to) < begin+maxPart && f.cursor.Next(&f.row) {
		t := f.taps[f.row.Source]
		if len(t.cells) == 0 || !f.row.Devices[t.cells[0].device].New {
			continue // nothing is shown, or another source had it
		}
		if len(to) > begin+len(head) {
			to = append(to, ',')
		}
		to = t.append(to, &f.row)
	}
	if len(to) == begin+len(head) {
		return to[:begin], false
	}
	more = len(to) >= begin+maxPart
	return append(to, tail...), more
}

// append appends a StreamRow. The cells of a device that was not sampled in the row are old.
func (t *streamTap) append(to []byte, row *rows.Row) []byte {
	to = append(to, `{"t":`...)
	to = strconv.AppendInt(to, row.Time/int64(time.Millisecond), 10)
	to = append(to, `,"first":`...)
	to = strconv.AppendInt(to, int64(t.first), 10)
	to = append(to, `,"v":[`...)
	for i := range t.cells {
		c := &t.cells[i]
		if i > 0 {
			to = append(to, ',')
		}
		v := c.scale.Of(row.Cells[c.cell])
		if !row.Devices[c.device].Sampled || math.IsNaN(v) || math.IsInf(v, 0) {
			to = append(to, "null"...)
			continue
		}
		to = strconv.AppendFloat(to, v, 'g', -1, 64)
	}
	return append(to, "]}"...)
}

// compare appends an event for each device that has changed, times apart.
func (f *feed) compare(to []byte, n *node) []byte {
	f.api.o.Viewed()
	first := f.compared.IsZero()
	f.compared = n.now
	if len(f.devices) > 2*len(n.devices) {
		clear(f.devices)
	}
	for i := range n.devices {
		d := &n.devices[i]
		if !f.chosen.device(d.Device.ID) {
			continue
		}
		now := n.device(d)
		sampled := now.LastSample
		now.LastSample = nil
		text := encode(now)
		if bytes.Equal(text, f.devices[now.ID]) {
			continue
		}
		f.devices[now.ID] = text
		if !first {
			now.LastSample = sampled
			to = appendEvent(to, "devices", now)
		}
	}
	return to
}

// changedVerdicts appends an event for each chosen device whose verdict is not the one in the last snapshot.
func (f *feed) changedVerdicts(to []byte) []byte {
	before, now := f.verdicts, f.api.o.Health()
	if now.Version == before.Version {
		return to
	}
	f.verdicts = now
	sent := make(map[string][]byte, len(before.Verdicts))
	for i := range before.Verdicts {
		sent[before.Verdicts[i].Device.ID] = encode(deviceHealth(&before.Verdicts[i]))
	}
	for i := range now.Verdicts {
		v := deviceHealth(&now.Verdicts[i])
		if f.chosen.device(v.ID) && !bytes.Equal(encode(v), sent[v.ID]) {
			to = appendEvent(to, "health", v)
		}
	}
	return to
}

// appendEvent appends a server-sent event.
func appendEvent(to []byte, name string, data any) []byte {
	to = append(to, "event: "+name+"\ndata: "...)
	return append(append(to, encode(data)...), "\n\n"...)
}

// encode returns the JSON of a value of this package, which is one line.
func encode(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("api: encode: " + err.Error()) // NaN and infinities became null before
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
