package exposition

import (
	"fmt"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func TestLabelsOf(t *testing.T) {
	f := func(in labelsOf, want string, dropped int) {
		t.Helper()
		set := in.set()
		testkit.Equal(t, "key", want, set.key())
		testkit.Equal(t, "labels dropped of "+want, dropped, in.dropped)
	}
	f(labelsOf{}, " ", 0)
	f(labelsOf{xid: true}, "{,} ", 0)
	f(labelsOf{fixed: labelsFrom("gpu", "0", "UUID", "")}, `{gpu="0",UUID=""} `, 0) // fixed labels keep order and emptiness
	f(labelsOf{facts: labelsFrom("z", "1", "a", "2"), column: labelsFrom("m", "3")}, `{a="2",m="3",z="1"} `, 0)
	f(labelsOf{facts: labelsFrom("a", ""), owner: labelsFrom("b", "")}, " ", 0) // to Prometheus, empty is absent
	f(labelsOf{facts: labelsFrom("z", "1"), owner: labelsFrom("a", "2")}, `{z="1",a="2"} `, 0)

	// The first label keeps its name.
	f(labelsOf{fixed: labelsFrom("gpu", "0"), facts: labelsFrom("gpu", "1", "f", "1"), column: labelsFrom("f", "2", "c", "3"), owner: labelsFrom("c", "4", "gpu", "5", "o", "6", "o", "7")},
		`{gpu="0",c="3",f="1",o="6"} `, 5)
	// Names that no page can carry, or that mean something else.
	f(labelsOf{owner: labelsFrom("", "1", "le", "2", "a-b", "3", "0a", "4", "__name__", "5", "ä", "6", "a:b", "7", "_ok", "8")}, `{_ok="8"} `, 7)
	f(labelsOf{owner: labelsFrom("err_code", "1", "err_msg", "2", "x", "3"), xid: true}, `{,,x="3"} `, 2)
	f(labelsOf{owner: labelsFrom("err_code", "1", "err_msg", "2")}, `{err_code="1",err_msg="2"} `, 0)

	// Pod labels: an owner's label wins over a label that a user gave to the pod.
	f(labelsOf{facts: labelsFrom("z", "1", "b", "2"), pod: labelsFrom("y", "3", "a", "4"), owner: labelsFrom("c", "5")}, `{a="4",b="2",y="3",z="1",c="5"} `, 0)
	f(labelsOf{fixed: labelsFrom("gpu", "0"), facts: labelsFrom("f", "1"), pod: labelsFrom("gpu", "p", "f", "p", "c", "p"), column: labelsFrom("c", "2")},
		`{gpu="0",c="2",f="1"} `, 3)
	f(labelsOf{pod: labelsFrom("namespace", "p", "x", "", "le", "1", "err_code", "q"), owner: labelsFrom("namespace", "o"), xid: true}, `{,,namespace="o"} `, 3)
	f(labelsOf{pod: labelsFrom("namespace", "p"), owner: labelsFrom("namespace", "")}, `{namespace="p"} `, 0)

	f(labelsOf{fixed: labelsFrom("a", "q\"b\\n\nu\xffé\x00")}, `{a="q\"b\\n\nu`+"\ufffdé\ufffd"+`"} `, 0)
}

// FuzzLabels: any text from a driver, a pod or a CSV reads back from the page unchanged, in each format.
func FuzzLabels(f *testing.F) {
	f.Add("A100", "train-0", "Help.", uint8(0))
	f.Add("a\"b\\c\nd", "\\", "\\n \" \n", uint8(1))
	f.Add("\xff\xfe", "\x00", "\xc3", uint8(2))
	f.Add("é\u2028", "{}=,", "# EOF\n", uint8(3))
	f.Fuzz(func(t *testing.T, model, pod, help string, kind uint8) {
		fields := field.List{Fields: []field.Field{
			metric(descTemp, "A", field.Type(kind%2), help),
			metric(descXID, "B", field.Gauge, help),
		}}
		d := collector.Device{ID: "d", Level: field.GPU, Model: model}
		feed := viewtest.Simple(fields, []collector.Device{d}, []collector.Column{{Field: descTemp.ID}, {Field: descXID.ID}})
		feed.Row[0], feed.Row[1] = 1, 79
		feed.Tick(time.Now())
		board := viewtest.Board(1, feed)
		r := New(board, Options{Owners: &testOwners{by: map[string][]view.Owner{"d": {ownerOf("pod", pod)}}}})
		r.store = &testStore{board: board, series: []accumulate.Series{{Source: feed.Source, Field: &field.Field{Desc: descPower, Name: "H", Type: field.Histogram, Help: help},
			Histogram: &accumulate.Histogram{Count: 1, Bounds: []float64{1}, Counts: []uint64{1, 0}}}}}

		text := parse(t, pageOf(t, r, Text), Text)
		for _, format := range []Format{OpenMetrics, Protobuf} {
			other := parse(t, pageOf(t, r, format), format)
			testkit.Equal(t, fmt.Sprintf("values of %v, as those of text", format), text.Values, other.Values)
			testkit.Equal(t, fmt.Sprintf("help of %v, as that of text", format), text.Help, other.Help)
		}
		testkit.Equal(t, fmt.Sprint("number of series in ", text.Values), 6, len(text.Values))
		want := wantLabels("A", "UUID", "", "device", "", "gpu", "", "modelName", printable(model), "pci_bus_id", "", "pod", printable(pod))
		v, ok := text.Values[want]
		testkit.ErrorIf(t, !ok || v != 1, "no series %s in %v", want, text.Values)
	})
}
