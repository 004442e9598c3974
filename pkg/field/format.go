package field

import (
	"bytes"
	"strconv"
	"strings"
)

// Format writes l as a CSV that Parse reads back to an equal List, line numbers
// aside.
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
			options = append(options, "buckets="+joinFloats(f.Buckets))
		}
		if len(options) > 0 {
			b.WriteString("," + strings.Join(options, " "))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func joinFloats(in []float64) string {
	parts := make([]string, len(in))
	for i, v := range in {
		parts[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strings.Join(parts, "|")
}
