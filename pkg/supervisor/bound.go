package supervisor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Limits for the log of a new session.
const (
	namesInSummary = 12
	namesInDetail  = 100
	detailLines    = 200
)

// boundLog logs the result of binding a list.
type boundLog struct {
	last string // last line at level info
}

// logBound logs how many fields no device has at level info, once while the answer stays the same. At level debug it
// logs each source and each reason.
func (b *boundLog) logBound(log *zap.Logger, sources []*view.Source) {
	if len(sources) == 0 {
		return
	}
	if without := absentEverywhere(sources); len(without) > 0 {
		fields := []zap.Field{zap.Int("fields", len(without)), zap.String("field", some(without, namesInSummary))}
		if text := fmt.Sprint(fields); text != b.last {
			b.last = text
			log.Info("no device has some fields of the list; run warpgauge check for the reasons", fields...)
		}
	} else {
		b.last = ""
	}
	if log.Core().Enabled(zapcore.DebugLevel) {
		logDetails(log, sources)
	}
}

// absentEverywhere returns the names of the list's fields that no device has.
func absentEverywhere(sources []*view.Source) (names []string) {
	columns, labels := map[field.ID]bool{}, map[string]bool{}
	for _, s := range sources {
		for _, c := range s.Columns {
			columns[c.Field] = true
		}
		for i := range s.Devices {
			for _, l := range s.Devices[i].Facts {
				labels[l.Name] = true
			}
		}
	}
	list := sources[0].Fields
	for i := range list.Fields {
		f := &list.Fields[i]
		id := f.Desc.ID
		if in, ok := field.Input(f.Desc); ok {
			id = in.ID
		}
		if !columns[id] && !labels[f.Name] && !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}

// lacking is one explanation with its fields and devices.
type lacking struct {
	collector.Explanation
	fields, devices []string
}

// logDetails logs each source, and each reason with its fields and devices.
func logDetails(log *zap.Logger, sources []*view.Source) {
	byReason := map[collector.Explanation]*lacking{}
	var all []*lacking
	for i, s := range sources {
		var ids []string
		for j := range s.Devices {
			ids = append(ids, s.Devices[j].ID)
		}
		if i < detailLines {
			log.Debug("bound a source", zap.String("devices", some(ids, namesInSummary)), zap.Int("columns", len(s.Columns)), zap.Duration("interval", s.Interval))
		}
		for _, a := range s.Absent {
			e := s.Explanations[a.Explanation]
			l := byReason[e]
			if l == nil {
				l = &lacking{Explanation: e}
				byReason[e], all = l, append(all, l)
			}
			if name := nameOf(a.Field); !slices.Contains(l.fields, name) {
				l.fields = append(l.fields, name)
			}
			if n := len(l.devices); n == 0 || l.devices[n-1] != ids[a.Device] { // entries of one device are adjacent
				l.devices = append(l.devices, ids[a.Device])
			}
		}
	}
	slices.SortFunc(all, func(a, b *lacking) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail))
	})
	for _, l := range all[:min(len(all), detailLines)] {
		log.Debug("fields are absent", zap.String("reason", string(l.Reason)), zap.String("detail", l.Detail),
			zap.String("field", some(l.fields, namesInDetail)), zap.String("devices", some(l.devices, namesInSummary)))
	}
}

// some joins at most the first names and says how many are left out.
func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func nameOf(id field.ID) string {
	if d, ok := field.ByID(id); ok {
		return d.Name
	}
	return fmt.Sprint(id)
}
