package supervisor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

// pair holds both ends of a control channel.
func pair(tb testing.TB) (parent *receiver, child *net.UnixConn) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(tb, err)
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		ends[i] = testkit.Get(connOf(os.NewFile(uintptr(fd), "control")))(tb)
		tb.Cleanup(func() { _ = ends[i].Close() })
	}
	return &receiver{conn: ends[0], fd: -1}, ends[1]
}

// receiving is a child with only the receiving end.
func receiving(conn *receiver) *child {
	return &child{
		o: &Options{Name: "toy"}, log: zap.NewNop(), conn: conn, list: list(1), born: time.Now(),
		news: make(chan struct{}, 1), end: make(chan struct{}),
	}
}

// memory is a region with an empty ring for each source of a view.
func memory(tb testing.TB, m viewMessage) *ring.Region {
	tb.Helper()
	words := 0
	for _, s := range m {
		words += ring.Words(s.Rows, len(s.Devices), len(s.Columns))
	}
	r := testkit.Get(ring.CreateRegion(max(words, 1)))(tb)
	mem := r.Words()
	for _, s := range m {
		n := ring.Words(s.Rows, len(s.Devices), len(s.Columns))
		ring.New(mem[:n:n], s.Rows, len(s.Devices), len(s.Columns))
		mem = mem[n:]
	}
	tb.Cleanup(func() { _ = r.CloseFD() })
	return r
}

// exampleView is a view with content in every part.
func exampleView() viewMessage {
	return viewMessage{
		{16, view.Source{
			Interval: time.Second,
			Devices: []collector.Device{
				{
					ID: "GPU-1", Parent: "GPU-0", Level: field.Instance, GPU: "0", UUID: "u", PCIBusID: "00000000:3B:00.0", Node: "nvidia0",
					Model: "Größe", Instance: collector.Instance{Profile: "1g.10gb", ID: "7", ComputeID: "1", UUID: "MIG-1"}, Alias: "xcp",
					Labels: []collector.Label{{Name: "nvlink", Value: "3"}, {Name: "nvswitch", Value: "s"}},
					Facts:  []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "550"}},
				},
				{ID: "x"},
			},
			Columns:      []collector.Column{{Device: 1, Field: 150, Labels: []collector.Label{{Name: "peer_gpu", Value: "1"}}}, {Field: 203}},
			Explanations: []collector.Explanation{{Reason: collector.ReasonUnsupported, Detail: "kein Lüfter"}, {Reason: collector.ReasonNoSymbol, Detail: "driver 470"}},
			Absent:       []collector.Absence{{Device: 1, Field: 191}, {Field: field.AMDPartition, Explanation: 1}},
		}},
		{2, view.Source{Interval: time.Minute, Devices: []collector.Device{{ID: "y", Level: field.GPU}}, Columns: []collector.Column{{Field: 150}}}},
	}
}

// A view, states and metrics arrive as they were sent.
func TestMessages(t *testing.T) {
	parent, conn := pair(t)
	c, to := receiving(parent), &sender{conn: conn}
	sent := exampleView()
	region := memory(t, sent)
	read := make(chan error, 1)
	go func() { read <- c.receiveMessages() }()
	must(t, to.send(&message{View: sent}, region.FD()))
	must(t, to.send(&message{States: statesOf([]session.DeviceStatus{
		{}, {State: session.Lost, Cause: session.CauseLost, Reason: "gone\x1b"}, {State: session.Stalled, Cause: session.CauseStarting},
	})}, -1))
	must(t, to.send(&message{Costs: costs()}, -1))
	must(t, to.send(&message{States: &statesMessage{Ended: true, Cause: session.CauseOutdated, Reason: "\u202edriver"}}, -1))
	must(t, conn.Close())
	must(t, <-read)

	sources := c.sources()
	testkit.FatalIf(t, len(sources) != 2, "%d sources, want 2", len(sources))
	for i, want := range sent {
		got := *sources[i]
		testkit.ErrorIf(t, got.Collector != "toy" || got.Ring.Rows() != want.Rows || len(got.Fields.Fields) != 1, "source %d is %+v", i, got)
		got.Collector, got.Ring, got.Fields = "", nil, field.List{}
		testkit.Equal(t, fmt.Sprintf("source %d (-sent +received)", i), want.Source, got)
	}
	// The parent reads the child's rows and does not invent any.
	r := testkit.Get(ring.Attach(region.Words(), 16, 2, 2))(t)
	at := time.Now()
	r.Append(at.UnixNano(), []int64{at.UnixNano(), 0}, []float64{1, 2})
	all := c.states()
	if len(all) != 3 || all[0].State != session.Up || !all[0].LastSample.Equal(at) || all[0].Device.ID != "GPU-1" {
		t.Errorf("states %+v, want the first up with the time of its row", all)
	}
	if all[1].State != session.Lost || all[1].Reason != "gone?" || all[2].Cause != session.CauseStarting {
		t.Errorf("states %+v, want the second lost and the third not sampled", all)
	}
	testkit.Equal(t, "costs (-sent +received)", costs(), c.costs())
	why := c.ended()
	testkit.ErrorIf(t, why.reason != ReasonOutdated || why.cause != session.CauseOutdated || why.text != "?driver", "the end is %+v", why)
}

// costs are example costs of a child's session.
func costs() *session.Costs {
	return &session.Costs{
		Collector: "toy", Began: time.Unix(1795348800, 0).UTC(), Sources: map[string]session.SourceCost{"a": {Samples: 2, Time: time.Second, Failed: 1}},
		Calls: map[string]collector.CallCost{"x": {Count: 3}}, Implausible: map[string]uint64{}, RescanErrors: 4,
	}
}

// No text of a child controls a terminal.
func TestControlCharacters(t *testing.T) {
	v := exampleView()
	d, c := &v[0].Devices[0], &v[0].Columns[0]
	d.ID, d.Labels[0].Value, c.Labels[0].Value, v[0].Explanations[0].Detail = "\x1b", "\a", "\x9b", "\u0085"
	must(t, v.validate())
	testkit.Equal(t, "texts", "? ? \uFFFD ?", strings.Join([]string{d.ID, d.Labels[0].Value, c.Labels[0].Value, v[0].Explanations[0].Detail}, " "))
}

func TestViewsThatAreRefused(t *testing.T) {
	f := func(what string, change func(m viewMessage) viewMessage) {
		t.Helper()
		m := change(exampleView())
		err := m.validate()
		testkit.ErrorIf(t, err == nil, "a view with %s is accepted", what)
	}
	f("no sources", func(viewMessage) viewMessage { return nil })
	f("a device with a long name", func(m viewMessage) viewMessage { m[0].Devices[0].Model = strings.Repeat("x", maxTexts); return m })
	f("a column with a long label", func(m viewMessage) viewMessage {
		m[0].Columns[0].Labels = []collector.Label{{Name: "a", Value: strings.Repeat("x", maxTexts)}}
		return m
	})
	f("long texts in very many series", func(m viewMessage) viewMessage {
		m[0].Devices[0].Model = strings.Repeat("x", maxTexts/2)
		m[0].Columns = slices.Repeat([]collector.Column{{Field: m[0].Columns[0].Field}}, maxPage/(maxTexts/2)+1)
		return m
	})
	f("too many sources", func(viewMessage) viewMessage { return make(viewMessage, maxSources+1) })
	for l, n := range map[field.Level]int{field.GPU: collector.MaxGPUs + 1, field.Link: maxDevices - 2} {
		f(fmt.Sprintf("%d devices of level %d", n, l), func(m viewMessage) viewMessage {
			for i := range n {
				m[1].Devices = append(m[1].Devices, collector.Device{ID: fmt.Sprint(i), Level: l})
			}
			return m
		})
	}
	f("no rows", func(m viewMessage) viewMessage { m[0].Rows = 0; return m })
	f("too many rows", func(m viewMessage) viewMessage { m[0].Rows = maxRows + 1; return m })
	f("no interval", func(m viewMessage) viewMessage { m[1].Interval = 0; return m })
	f("an interval of years", func(m viewMessage) viewMessage { m[1].Interval = math.MaxInt64; return m })
	f("a device without id", func(m viewMessage) viewMessage { m[0].Devices[1].ID = ""; return m })
	f("an id twice", func(m viewMessage) viewMessage { m[1].Devices[0].ID = "x"; return m })
	f("too many devices", func(m viewMessage) viewMessage { m[1].Devices = make([]collector.Device, maxDevices); return m })
	f("too many columns", func(m viewMessage) viewMessage { m[1].Columns = make([]collector.Column, maxColumns); return m })
	f("a column of no device", func(m viewMessage) viewMessage { m[1].Columns[0].Device = 1; return m })
	f("a column of a device before the first", func(m viewMessage) viewMessage { m[1].Columns[0].Device = -1; return m })
	f("a label with an illegal name", func(m viewMessage) viewMessage { m[0].Columns[0].Labels[0].Name = "a b"; return m })
	f("a reason that there is not", func(m viewMessage) viewMessage { m[0].Explanations[0].Reason = "because"; return m })
	f("a long detail", func(m viewMessage) viewMessage {
		m[0].Explanations[0].Detail = strings.Repeat("x", maxText+1)
		return m
	})
	f("too many explanations", func(m viewMessage) viewMessage {
		m[0].Explanations = slices.Repeat(m[0].Explanations, collector.MaxExplanations)
		return m
	})
	f("an absence of no device", func(m viewMessage) viewMessage { m[0].Absent[0].Device = 2; return m })
	f("an absence of a device before the first", func(m viewMessage) viewMessage { m[0].Absent[0].Device = -1; return m })
	f("an absence without explanation", func(m viewMessage) viewMessage { m[0].Absent[0].Explanation = 2; return m })
	f("too many absences", func(m viewMessage) viewMessage { m[0].Absent = slices.Repeat(m[0].Absent[:1], maxColumns+1); return m })
	f("a fact with an illegal name", func(m viewMessage) viewMessage { m[0].Devices[0].Facts[0].Name = "x\n"; return m })
}

// A breach of the channel's rules ends it with an error, and leaves no descriptor open.
func TestHostileMessages(t *testing.T) {
	f := func(what string, send func(s *sender, region *ring.Region) error, want string) {
		t.Helper()
		t.Run(what, func(t *testing.T) {
			before := descriptors(t)
			parent, conn := pair(t)
			c := receiving(parent)
			read := make(chan error, 1)
			go func() { read <- c.receiveMessages() }()
			region := memory(t, exampleView())
			must(t, send(&sender{conn: conn}, region))
			must(t, conn.CloseWrite())
			err := <-read
			testkit.ErrorIf(t, !errors.Is(err, errChannel) || !strings.Contains(err.Error(), want), "read: %v, want an error with %q", err, want)
			c.conn.close()
			_, _ = conn.Close(), region.CloseFD()
			testkit.AtMost(t, "open descriptors", before, descriptors(t))
		})
	}
	raw := func(b ...byte) func(*sender, *ring.Region) error {
		return func(s *sender, _ *ring.Region) error { _, err := s.conn.Write(b); return err }
	}
	text := func(payload string) func(*sender, *ring.Region) error {
		return func(s *sender, _ *ring.Region) error { return writeFrame(s.conn, []byte(payload), -1) }
	}
	send := func(s *sender, m viewMessage, fd int) error { return s.send(&message{View: m}, fd) }
	f("a message over the limit", raw(0xff, 0xff, 0xff, 0xff), "bytes")
	f("a message that is not JSON", text("{"), "JSON")
	f("an empty message", text(""), "JSON")
	f("an unknown name", text(`{"X":"a"}`), `the name "X"`)
	f("a long text", text(`{"States":{"Reason":"`+strings.Repeat("a", 4*maxTexts)+`"}}`), "a text of more than")
	f("a long message without a view", text(`{"States":{"Devices":[{}`+strings.Repeat(`,{"Reason":"`+strings.Repeat("a", maxText)+`"}`, maxReport/maxText)+`]}}`), "without a view")
	f("states that are not an object", text(`{"States":7}`), "States")
	f("costs of too many sources", func(s *sender, _ *ring.Region) error {
		many := session.Costs{Sources: map[string]session.SourceCost{}}
		for i := range maxSources + 1 {
			many.Sources[fmt.Sprint(i)] = session.SourceCost{}
		}
		return s.send(&message{Costs: &many}, -1)
	}, "4097 elements of Sources")
	f("an unknown state", text(`{"States":{"Devices":[{"State":9}]}}`), "state 9")
	f("a state of a device before the first", text(`{"States":{"Devices":[{"Device":-1}]}}`), "device -1")
	f("a cause that is not a word", text(`{"States":{"Devices":[{"Cause":"a\nb"}]}}`), "cause")
	f("a cause of the end that is not a word", text(`{"States":{"Ended":true,"Cause":"A"}}`), "cause")
	f("a long cause", text(`{"States":{"Cause":"`+strings.Repeat("a", 33)+`"}}`), "cause")
	f("too many elements", text(`{"View":[{"Devices":[{}`+strings.Repeat(",{}", maxCommas+1)+`]}]}`), "elements")
	f("too many devices", text(`{"View":[{"Rows":16,"Interval":1,"Devices":[{}`+strings.Repeat(",{}", maxDevices)+`]}]}`), "elements of Devices")
	f("a view without memory", func(s *sender, _ *ring.Region) error { return send(s, exampleView(), -1) }, "open shared memory")
	f("a view with a descriptor of something else", func(s *sender, _ *ring.Region) error {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		return errors.Join(send(s, exampleView(), int(null.Fd())), null.Close())
	}, "open shared memory")
	f("a view with memory that can shrink", func(s *sender, _ *ring.Region) error {
		fd, err := unix.MemfdCreate("toy", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			return err
		}
		return errors.Join(unix.Ftruncate(fd, 1<<20), send(s, exampleView(), fd), unix.Close(fd))
	}, "seals")
	f("a view with too little memory", func(s *sender, r *ring.Region) error {
		m := exampleView()
		m[0].Rows = maxRows
		return send(s, m, r.FD())
	}, "more than the memory")
	f("a view with rings of another shape", func(s *sender, r *ring.Region) error {
		m := exampleView()
		m[0].Columns = m[0].Columns[:1]
		return send(s, m, r.FD())
	}, "attach ring")
	f("a second view", func(s *sender, r *ring.Region) error {
		return errors.Join(send(s, exampleView(), r.FD()), send(s, exampleView(), r.FD()))
	}, "second view")
	f("a descriptor with states", func(s *sender, r *ring.Region) error {
		return s.send(&message{States: &statesMessage{}}, r.FD())
	}, "descriptor")
	f("two descriptors", func(s *sender, r *ring.Region) error {
		_, _, err := s.conn.WriteMsgUnix([]byte{0, 0, 0, 2, '{', '}'}, unix.UnixRights(r.FD(), r.FD()), nil)
		return err
	}, "2 descriptors")
	f("more descriptors than are read", func(s *sender, r *ring.Region) error {
		fds := make([]int, 100)
		for i := range fds {
			fds[i] = r.FD()
		}
		_, _, err := s.conn.WriteMsgUnix([]byte{0, 0, 0, 2, '{', '}'}, unix.UnixRights(fds...), nil)
		return err
	}, "descriptors")
}

// descriptors returns how many descriptors this process has open.
func descriptors(tb testing.TB) int {
	tb.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Skip(err)
	}
	return len(all)
}

// A child that ends in the middle of a message has broken no rule.
func TestTheEndOfTheChannel(t *testing.T) {
	for _, b := range []string{"", "\x00\x00", "\x00\x00\x00\x09{}"} {
		parent, conn := pair(t)
		c := receiving(parent)
		_, err := conn.Write([]byte(b))
		must(t, errors.Join(err, conn.Close()))
		if err := c.receiveMessages(); err != nil {
			t.Errorf("after %q: %v", b, err)
		}
	}
}

// A length alone allocates no memory.
func TestALongMessageThatDoesNotComeTakesNoMemory(t *testing.T) {
	parent, conn := pair(t)
	_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, maxMessage), '{'))
	must(t, err)
	must(t, conn.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = parent.next()
	runtime.ReadMemStats(&after)
	testkit.AtMost(t, "bytes that were taken", 1<<20, after.TotalAlloc-before.TotalAlloc)
	testkit.Equal(t, "an error", true, err != nil)
}

// FuzzReceiver sends the parent anything that a faulty child could: any bytes, with descriptors of good memory among
// them. The parent must not panic or hold more than the bounds allow, and what it accepts must be readable.
func FuzzReceiver(f *testing.F) {
	frame := func(payload string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
	}
	region := memory(f, exampleView())
	f.Add(frame(`{"View":[{"Rows":16,"Interval":1,"Devices":[{"ID":"a"},{"ID":"b"}],"Columns":[{"Device":1},{}]}]}`), true)
	f.Add(frame(`{"States":{"Devices":[{"Device":1,"State":2,"Cause":"lost","Reason":"gone"}],"Ended":true,"Cause":"outdated"}}`), false)
	f.Add(frame(`{"States":{"Devices":[{"Device":1,"State":2}]}}`), true)
	f.Add(frame(`{"Costs":{"Sources":{"a":{"Samples":2,"Within":[1,2]}},"Calls":{"x":{"Count":1}}}}`), false)
	f.Fuzz(func(t *testing.T, stream []byte, fd bool) {
		parent, conn := pair(t)
		c := receiving(parent)
		go func() {
			var rights []byte
			if fd {
				rights = unix.UnixRights(region.FD())
			}
			if len(stream) > 0 {
				n, _, _ := conn.WriteMsgUnix(stream[:1], rights, nil)
				_, _ = conn.Write(stream[n:])
			}
			_ = conn.Close()
		}()
		err := c.receiveMessages()
		testkit.ErrorIf(t, err != nil && !errors.Is(err, errChannel), "read: %v", err)
		c.conn.close()
		all := c.states()
		testkit.ErrorIf(t, len(all) > maxDevices || deviceCount(c.sources()) != len(all), "%d devices", len(all))
		for _, d := range all {
			testkit.ErrorIf(t, d.State > session.LastState || !isCause(d.Cause) || len(d.Reason) > maxText, "%+v", d)
		}
		if costs := c.costs(); costs != nil {
			registry := prometheus.NewRegistry()
			registry.MustRegister(described{costs})
			testkit.Get(registry.Gather())(t)
		}
	})
}

// described makes costs a prometheus.Collector.
type described struct{ *session.Costs }

func (described) Describe(chan<- *prometheus.Desc) {}

// The states fit into a message with any number of failed devices and any text from a library.
func TestStatesOfMostDevicesFit(t *testing.T) {
	all := make([]session.DeviceStatus, maxDevices)
	for i := range all {
		all[i] = session.DeviceStatus{State: session.Stalled, Cause: session.CauseFrozen, Reason: strings.Repeat("\x01", 2*maxText)}
	}
	text, err := json.Marshal(message{States: statesOf(all)})
	commas := bytes.Count(text, []byte{','})
	testkit.ErrorIf(t, err != nil || len(text) > maxReport || commas > maxCommas, "a message of %d bytes and %d elements, %v", len(text), commas, err)
	many := &message{States: &statesMessage{Devices: make([]deviceMessage, maxCommas/3)}}
	testkit.Has(t, "sending too many elements", fmt.Sprint(new(sender).send(many, -1)), "elements: at most")
}

// A view of the most absences that a session allows, and of many columns, fits into a message.
func TestLargestView(t *testing.T) {
	s := sourceMessage{Rows: 16, Source: view.Source{Interval: time.Second, Explanations: exampleView()[0].Explanations}}
	for i := range 512 { // the devices of 32 GPUs with 15 parts each
		d := exampleView()[0].Devices[0]
		d.ID = fmt.Sprintf("GPU-00000000-0000-0000-0000-000000000000/link%d", i)
		s.Devices = append(s.Devices, d)
	}
	for i := range maxColumns {
		if i < maxColumns/8 { // the page of more would be too large
			s.Columns = append(s.Columns, collector.Column{Device: i % len(s.Devices), Field: math.MaxUint16})
		}
		s.Absent = append(s.Absent, collector.Absence{Device: i % len(s.Devices), Field: math.MaxUint16, Explanation: uint16(i % 2)})
	}
	text, err := json.Marshal(message{View: viewMessage{s}})
	commas := bytes.Count(text, []byte{','})
	testkit.ErrorIf(t, err != nil || len(text) > maxMessage || commas > maxCommas, "a message of %d bytes and %d elements, %v", len(text), commas, err)
	var got message
	if err := json.Unmarshal(text, &got); err != nil || !slices.Equal(got.View[0].Absent, s.Absent) || got.View.validate() != nil {
		t.Errorf("the view arrives changed: %v, %v", err, got.View.validate())
	}
}

// TestCostOfLargestView: what a view and its pages keep in memory.
func TestCostOfLargestView(t *testing.T) {
	list := collectortest.Gauges(t, "DCGM_FI_DEV_GPU_TEMP")
	s := sourceMessage{Rows: 16, Source: view.Source{Interval: time.Second, Explanations: exampleView()[0].Explanations, Devices: []collector.Device{{ID: "a", Level: field.GPU}}}}
	column := func(i int) collector.Column {
		return collector.Column{Field: list.Fields[0].Desc.ID, Labels: []collector.Label{{Name: "a", Value: strconv.Itoa(i)}}}
	}
	for i := range (maxPage - 2*deviceBytes) / (seriesBytes + textsOf(s.Devices[0]) + textsOf(column(10_000).Labels)) {
		s.Columns = append(s.Columns, column(i))
	}
	s.Absent = slices.Repeat([]collector.Absence{{}}, maxColumns)
	text := testkit.Get(json.Marshal(message{View: viewMessage{s}}))(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var m message
	testkit.Must(t, errors.Join(countElements(text), json.Unmarshal(text, &m)))
	testkit.Must(t, m.View.validate())
	feed := viewtest.Simple(list, m.View[0].Devices, m.View[0].Columns)
	feed.Tick(time.Now())
	pages := exposition.New(viewtest.Board(1, feed), exposition.Options{StaleAfter: time.Hour})
	for i, accept := range []string{"text/plain", "application/openmetrics-text", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"} {
		page, _, _ := pages.Negotiated(accept, []string{"gzip", ""}[min(i, 1)])
		testkit.ErrorIf(t, len(page) < len(text)/50, "a page of %d bytes for %s", len(page), accept)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	testkit.AtMost(t, "memory", 64<<20, int64(after.HeapAlloc)-int64(before.HeapAlloc)+int64(len(text)))
	runtime.KeepAlive([]any{m, pages, feed})
}

// TestCostOfMessages: the elements of a message take little memory, however short they are and however their names are written.
func TestCostOfMessages(t *testing.T) {
	many := func(n int) string { return "{}" + strings.Repeat(",{}", n-1) }
	for _, text := range []string{
		`{"View":[` + many(maxCommas) + `]}`, `{"View":[{"Devices":[` + many(maxDevices) + `],"Columns":[` + many(limits["Columns"]) + `],"Absent":[` + many(maxColumns) + `]}]}`,
		`{"view":[{"d\u0065viceſ" : [` + many(maxCommas) + `]}]}`, `{"View":[{"Explanations":[` + many(maxCommas) + `]}]}`,
		`{"View":[{"Devices":[],"Devices":[` + many(maxCommas) + `]}]}`, `{"View":[{"Columns":[{"Labels":[` + many(maxCommas) + `]}]}]}`,
		`{"States":{"Devices":[` + many(maxCommas) + `]}}`, `{"Costs":{"Calls":{"":` + strings.Repeat(`{},"x":`, maxCommas) + `{}}}}`, strings.Repeat("[", maxMessage),
		`{"View":` + strings.Repeat(`"\"`, maxMessage/3), // a regular expression would take days
		`{"X":"` + strings.Repeat("a", maxMessage) + `"}`, `{"States":{"Reason":"` + strings.Repeat(`\u0001`, maxMessage/6) + `"}}`, `{"X":` + strings.Repeat(" ", maxMessage) + `0}`,
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var m message
		err := countElements([]byte(text))
		if err == nil {
			err = json.Unmarshal([]byte(text), &m)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		testkit.AtMost(t, fmt.Sprintf("memory for %.40s, garbage included (%v)", text, err), 64<<20, int64(after.TotalAlloc-before.TotalAlloc))
		runtime.KeepAlive(m)
	}
}
