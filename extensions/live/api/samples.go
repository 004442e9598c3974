package api

import (
	"fmt"
	"iter"
	"net/http"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/pkg/field"
)

// History supplies the samples for /api/v1/samples. *history.History implements it.
type History interface {
	Series(history.Match) []history.Series
	Samples(s history.Series, from, until int64) iter.Seq2[int64, float64]
	Points(s history.Series, from, until int64, n int) (points []history.Point, step int64)
}

var _ History = (*history.History)(nil)

// Limits of an answer. 15 minutes of 10 ms ticks are 90,000 samples.
const (
	maxSamples = 200_000
	maxPoints  = 5_000
	maxSeries  = 256 // per device and field
)

// samples returns the answer of /api/v1/samples.
func samples(o *Options, q *query) (*apiv1.Samples, error) {
	if o.History == nil {
		return nil, &apiv1.Problem{Status: http.StatusNotFound, Detail: "no history is kept: set --history-age and --history-bytes to more than 0"}
	}
	device, errDevice := q.one("device")
	name, errField := q.one("field")
	switch {
	case errDevice != nil:
		return nil, errDevice
	case errField != nil:
		return nil, errField
	case device == "" || name == "":
		return nil, badQuery("give device= an id of %sdevices and field= a name of %slist", Prefix, Prefix)
	}
	reading, factor, known := field.ByName(name)
	if !known {
		return nil, &apiv1.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no field %q: %slist has those in service", name, Prefix)}
	}
	f := &field.Field{Desc: reading, Name: name, Scale: factor}
	series := o.History.Series(history.Match{Device: device, Field: reading.ID})
	if len(series) == 0 {
		if _, there := newNode(o).byID[device]; !there {
			return nil, &apiv1.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("no device has the id %q, nor had one lately: %sdevices has those there are", device, Prefix)}
		}
	}
	if len(series) > maxSeries {
		return nil, badQuery("the field has %d series for the device: the most is %d", len(series), maxSeries)
	}
	now := o.Now()
	since, errSince := timeIn(q, "since", now, now.Add(-o.HistoryAge))
	until, errUntil := timeIn(q, "until", now, now)
	points, errPoints := countIn(q, "points", 0, maxPoints)
	for _, err := range []error{errSince, errUntil, errPoints} {
		if err != nil {
			return nil, err
		}
	}
	out := &apiv1.Samples{Device: device, Field: name, Unit: unitOf(f), From: since.UnixMilli(), Until: until.UnixMilli(), Series: []apiv1.SampledSeries{}}
	if out.From >= out.Until {
		return nil, badQuery("since is %s and until is %s: there is no time in between", since.Format(time.RFC3339Nano), until.Format(time.RFC3339Nano))
	}
	scale, left := field.NewScale(factor), maxSamples
	for _, s := range series {
		of := apiv1.SampledSeries{Labels: pairs(s.Labels), Buffered: s.Buffered, Times: []int64{}}
		if points > 0 {
			if left -= points; left < 0 {
				return nil, badQuery("%d points of %d series are more than %d: ask for fewer points", points, len(series), maxSamples)
			}
			out.Step = addPoints(&of, o.History, s, out, points, scale)
		} else if left = addSamples(&of, o.History, s, out, left, scale); left < 0 {
			return nil, badQuery("there are more than %d samples: ask for a shorter time, or for a number of points=", maxSamples)
		}
		out.Series = append(out.Series, of)
	}
	return out, nil
}

// addSamples adds unchanged samples and returns the remaining room; a negative result means too
// many samples.
func addSamples(to *apiv1.SampledSeries, h History, s history.Series, q *apiv1.Samples, left int, scale field.Scale) int {
	to.Values = []*float64{}
	for at, v := range h.Samples(s, q.From, q.Until) {
		if left--; left < 0 {
			break
		}
		to.Times = append(to.Times, at)
		to.Values = append(to.Values, number(scale.Of(v)))
	}
	return left
}

// addPoints adds summaries over spans of time. It omits leading and trailing spans without samples;
// other empty spans are null.
func addPoints(to *apiv1.SampledSeries, h History, s history.Series, q *apiv1.Samples, n int, scale field.Scale) (step int64) {
	points, step := h.Points(s, q.From, q.Until, n)
	first, end := len(points), 0
	for i := range points {
		if points[i].Samples > 0 {
			first, end = min(first, i), i+1
		}
	}
	to.Min, to.Max, to.Mean = []*float64{}, []*float64{}, []*float64{}
	for i := first; i < end; i++ {
		p := &points[i]
		to.Times = append(to.Times, q.From+int64(i)*step)
		to.Min = append(to.Min, number(scale.Of(p.Min)))
		to.Max = append(to.Max, number(scale.Of(p.Max)))
		to.Mean = append(to.Mean, number(scale.Of(p.Mean)))
	}
	return step
}
