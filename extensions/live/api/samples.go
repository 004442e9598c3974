package api

import (
	"cmp"
	"iter"
	"math"
	"net/http"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/field"
)

// Limits of an answer. 15 minutes of 10 ms ticks are 90,000 samples.
const (
	maxSamples = 200_000
	maxPoints  = 5_000
	maxSeries  = 256 // per device and field
)

// samples returns the answer of /api/v1/samples.
func samples(o *Options, q *query) (*apiv1.Samples, error) {
	if o.Past.History == nil {
		return nil, &apiv1.Problem{Status: http.StatusNotFound, Detail: "no history is kept: set --history-age and --history-bytes to more than 0"}
	}
	device, errDevice := q.one("device")
	name, errField := q.one("field")
	switch err := cmp.Or(errDevice, errField); {
	case err != nil:
		return nil, err
	case device == "" || name == "":
		return nil, badQuery("give device= an id of %sdevices and field= a name of %slist", Prefix, Prefix)
	}
	reading, factor, known := field.ByName(name)
	if !known {
		return nil, unknownField(name)
	}
	f := &field.Field{Desc: reading, Name: name, Scale: factor}
	series := o.Past.History.Series(device, reading.ID)
	if len(series) == 0 {
		if _, err := newNode(o).choose(q); err != nil {
			return nil, err
		}
	}
	if len(series) > maxSeries {
		return nil, badQuery("the field has %d series for the device: the most is %d", len(series), maxSeries)
	}
	now := o.Now()
	since, errSince := timeIn(q, "since", now, now.Add(-o.Past.MaxAge))
	until, errUntil := timeIn(q, "until", now, now)
	points, errPoints := countIn(q, "points", 0, maxPoints)
	if err := cmp.Or(errSince, errUntil, errPoints); err != nil {
		return nil, err
	}
	out := &apiv1.Samples{Device: device, Field: name, Unit: unitOf(f), From: since.UnixMilli(), Until: until.UnixMilli(), Series: []apiv1.SampledSeries{}}
	if out.From >= out.Until {
		return nil, badQuery("since is %s and until is %s: there is no time in between", since.Format(time.RFC3339Nano), until.Format(time.RFC3339Nano))
	}
	scale, left := field.NewScale(factor), maxSamples
	for _, s := range series {
		of := apiv1.SampledSeries{Labels: pairs(s.Labels), Buffered: s.Buffered, Times: []int64{}}
		all := o.Past.History.Samples(s, out.From, out.Until)
		if points > 0 {
			if left -= points; left < 0 {
				return nil, badQuery("%d points of %d series are more than %d: ask for fewer points", points, len(series), maxSamples)
			}
			addPoints(&of, all, out, points, scale)
		} else if left = addSamples(&of, all, left, scale); left < 0 {
			return nil, badQuery("there are more than %d samples: ask for a shorter time, or for a number of points=", maxSamples)
		}
		out.Series = append(out.Series, of)
	}
	return out, nil
}

// addSamples adds unchanged samples and returns the remaining room; a negative result means too many samples.
func addSamples(to *apiv1.SampledSeries, samples iter.Seq2[int64, float64], left int, scale field.Scale) int {
	to.Values = []*float64{}
	for at, v := range samples {
		if left--; left < 0 {
			break
		}
		to.Times = append(to.Times, at)
		to.Values = append(to.Values, Number(scale.Of(v)))
	}
	return left
}

// addPoints divides the answer's time into at most n spans of whole milliseconds, and adds a summary of each. It omits
// leading and trailing spans without samples; other empty spans are null.
func addPoints(to *apiv1.SampledSeries, samples iter.Seq2[int64, float64], q *apiv1.Samples, n int, scale field.Scale) {
	q.Step = int64((uint64(q.Until)-uint64(q.From)-1)/uint64(n) + 1)
	to.Min, to.Max, to.Mean = []*float64{}, []*float64{}, []*float64{}
	count, low, high, mean := 0, 0.0, 0.0, 0.0
	span := int64(-1)
	add := func() {
		if count > 0 {
			to.Times = append(to.Times, q.From+span*q.Step)
			to.Min, to.Max, to.Mean = append(to.Min, Number(scale.Of(low))), append(to.Max, Number(scale.Of(high))), append(to.Mean, Number(scale.Of(mean)))
		}
	}
	for at, v := range samples {
		if math.IsNaN(v) {
			continue
		}
		if i := (at - q.From) / q.Step; i != span {
			add()
			for span++; count > 0 && span < i; span++ {
				to.Times = append(to.Times, q.From+span*q.Step)
				to.Min, to.Max, to.Mean = append(to.Min, nil), append(to.Max, nil), append(to.Mean, nil)
			}
			span, count, low, high, mean = i, 0, v, v, 0
		}
		count++
		low, high = min(low, v), max(high, v)
		mean += (v - mean) / float64(count) // a plain sum could overflow
	}
	add()
}
