package field

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// List holds the fields of one counters CSV, in file order. The zero List has no fields. A List must not be changed.
type List struct {
	Fields []Field
	// Hidden lists readings that are sampled but not shown: health rules need them with any file. Format leaves them out.
	Hidden []Reading
	// Dialect shows devices of a vendor under the names of another exporter. It may be nil.
	Dialect *Dialect
}

// Hides reports whether no field of the list uses a reading, so that it is sampled only for Hidden or the dialect.
func (l List) Hides(id ID) bool {
	if id == XIDsSince || id == XIDsUntil {
		id = XIDEvent
	}
	if !Asks(l.Hidden, id) && !l.Dialect.Shows(id) {
		return false
	}
	return !slices.ContainsFunc(l.Fields, func(f Field) bool {
		d := f.Desc
		if in, computed := Input(d); computed {
			d = in
		}
		return d.ID == id && (f.Type != Label || f.Changes())
	})
}

// Metrics returns the fields that become families of their own.
func (l List) Metrics() []Field { return l.without(func(f Field) bool { return f.Type == Label }) }

// Labels returns the fields that become labels.
func (l List) Labels() []Field { return l.without(func(f Field) bool { return f.Type != Label }) }

// LabelInterval is the time between checks for new label values.
const LabelInterval = time.Minute

// Changes reports whether f is a label with a number that can change while the driver runs.
func (f *Field) Changes() bool {
	return f.Type == Label && f.Desc.Kind != String && f.Desc.Cost != Static
}

// Readings returns each quantity that the metric fields need once, in the order of first use. For a field
// that the exporter computes from another reading (see Input), it returns that reading. Fields with several
// names or units of one reading share its entry. After metrics and changing labels come the dialect's
// readings. The Hidden ones are last, unless the list shows nothing.
func (l List) Readings() []Reading {
	var out []Reading
	at := map[ID]int{}
	named := l.Dialect.readings()
	if len(l.Metrics()) == 0 && len(named) == 0 {
		return nil
	}
	for _, f := range l.Fields {
		if f.Changes() {
			f.Interval = LabelInterval
		} else if f.Type == Label {
			continue
		}
		d := f.Desc
		if in, ok := Input(d); ok {
			d = in
		}
		i, seen := at[d.ID]
		if !seen {
			i = len(out)
			at[d.ID] = i
			out = append(out, Reading{Desc: d})
		}
		r := &out[i]
		r.Histogram = r.Histogram || f.Type == Histogram
		switch {
		case f.Interval == 0:
			r.Default = true
		case r.Interval == 0 || f.Interval < r.Interval:
			r.Interval = f.Interval
		}
	}
	for _, r := range slices.Concat(named, l.Hidden) {
		if i, seen := at[r.Desc.ID]; seen && l.Dialect.Shows(r.Desc.ID) {
			out[i].Default = true
		}
		if _, seen := at[r.Desc.ID]; !seen {
			at[r.Desc.ID] = len(out)
			out = append(out, r)
		}
	}
	return out
}

// Asks reports whether one of the readings has one of the ids.
func Asks(readings []Reading, ids ...ID) bool {
	return slices.ContainsFunc(readings, func(r Reading) bool { return slices.Contains(ids, r.Desc.ID) })
}

func (l List) without(drop func(Field) bool) []Field {
	return slices.DeleteFunc(slices.Clone(l.Fields), drop)
}

// Format writes l as a CSV. Parse reads it back to an equal List, except for line numbers.
func Format(l List) []byte {
	var b bytes.Buffer
	for i := range l.Fields {
		f := &l.Fields[i]
		b.WriteString(f.Name + ", " + f.Type.String() + `,"` + strings.ReplaceAll(f.Help, `"`, `""`) + `"`)
		var options []string
		if f.Interval != 0 {
			options = append(options, "interval="+f.Interval.String())
		}
		if len(f.Buckets) > 0 {
			options = append(options, "buckets="+strings.ReplaceAll(strings.Trim(fmt.Sprint(f.Buckets), "[]"), " ", "|"))
		}
		if f.Names != "" {
			options = append(options, "names="+string(f.Names))
		}
		if len(options) > 0 {
			b.WriteString("," + strings.Join(options, " "))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// Scale converts a reading to the value of a series. float64 cannot hold a factor such as 0.001 exactly, so multiplying
// would show 9 mW as 0.009000000000000001 W, and count 70 % above the bucket 0.7. Dividing by 1000 rounds once, to 0.009.
type Scale struct{ mul, div float64 }

// NewScale returns the Scale of a Field's factor.
func NewScale(factor float64) Scale {
	if factor != 0 && math.Abs(factor) < 1 {
		if inverse := math.Round(1 / factor); 1/inverse == factor {
			return Scale{1, inverse}
		}
	}
	return Scale{factor, 1}
}

// Reading converts the value of a series back to its reading: the inverse of Of.
func (s Scale) Reading(value float64) float64 { return value * s.div / s.mul }

// Of returns the value of a series. NaN stays NaN.
func (s Scale) Of(reading float64) float64 {
	v := reading * s.mul
	if s.div != 1 {
		v /= s.div
	}
	return v
}
