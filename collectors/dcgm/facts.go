//go:build linux && cgo

package dcgm

import (
	"math"
	"slices"
	"strconv"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// facts reads the label fields of entities: texts as they are, numbers as the
// list scales them. What an entity does not have is left out.
func (d *discovery) facts(entities []entity) ([][]collector.Label, error) {
	var words, numbers []field.Field
	for _, f := range d.fields.Labels() {
		switch {
		case f.Desc.ID >= field.FirstExporter:
		case f.Desc.Kind == field.String:
			words = append(words, f)
		case f.Desc.Kind == field.Int64 || f.Desc.Kind == field.Double:
			numbers = append(numbers, f)
		}
	}
	out := make([][]collector.Label, len(entities))
	texts, err := apart(d.engine.texts, entities, numbersOf(words), "")
	if err != nil {
		return nil, err
	}
	values, err := apart(d.engine.live, entities, numbersOf(numbers), cell{value: math.NaN()})
	if err != nil {
		return nil, err
	}
	for e := range entities {
		for i, f := range words {
			if text := present(texts[e*len(words)+i]); text != "" {
				out[e] = append(out[e], collector.Label{Name: f.Name, Value: text})
			}
		}
		for i, f := range numbers {
			if v := values[e*len(numbers)+i].value; !math.IsNaN(v) {
				out[e] = append(out[e], collector.Label{Name: f.Name, Value: strconv.FormatFloat(v*f.Scale, 'f', -1, 64)})
			}
		}
	}
	return out, nil
}

// apart reads fields in one call, and one by one where that fails: a field that the
// engine does not know, or that only other kinds of entities have, fails the whole
// call. Such a field is blank.
func apart[T any](read func([]entity, []uint16) ([]T, error), entities []entity, fields []uint16, blank T) ([]T, error) {
	all, err := read(entities, fields)
	if !ofAField(err) {
		return all, err
	}
	all = slices.Repeat([]T{blank}, len(entities)*len(fields))
	for f := 0; len(fields) > 1 && f < len(fields); f++ {
		one, err := apart(read, entities, fields[f:f+1], blank)
		if err != nil {
			return nil, err
		}
		for e := range entities {
			all[e*len(fields)+f] = one[e]
		}
	}
	return all, nil
}

func numbersOf(fields []field.Field) []uint16 {
	out := make([]uint16, len(fields))
	for i, f := range fields {
		out[i] = uint16(f.Desc.ID)
	}
	return out
}

// globalFacts are those that hold for the whole node, for devices that have none
// of their own.
func (d *discovery) globalFacts() []collector.Label {
	all, err := d.facts([]entity{{kindNone, 0}})
	if err != nil {
		return nil
	}
	global := map[string]bool{}
	for _, f := range d.fields.Labels() {
		global[f.Name] = f.Desc.Level == field.Global
	}
	return slices.DeleteFunc(all[0], func(l collector.Label) bool { return !global[l.Name] })
}
