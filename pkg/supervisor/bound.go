package supervisor

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// maxNames bounds the names of fields in the log of a new session.
const maxNames = 12

// logBound logs how many fields no device has, once while the answer stays the same.
func (s *Supervisor) logBound(sources []*view.Source) {
	names := absentEverywhere(sources)
	n, text := len(names), strings.Join(names[:min(len(names), maxNames)], ", ")
	if n > maxNames {
		text += fmt.Sprintf(" and %d more", n-maxNames)
	}
	if n > 0 && text != s.loggedAbsent {
		s.log.Info("no device has some fields of the list; run warpgauge check for the reasons", zap.Int("fields", n), zap.String("field", text))
	}
	s.loggedAbsent = text
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
