package main

import (
	"bytes"
	_ "embed" // facts.csv and base_units.csv
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
)

//go:embed facts.csv
var factsCSV []byte

//go:embed base_units.csv
var baseUnitsCSV []byte

// fact is one row of facts.csv, with Go expressions where it becomes code.
type fact struct {
	kind, level, unit, cost string
	min, max                float64
	help                    string
}

var (
	kinds = map[string]string{"int": "Int64", "double": "Double", "string": "String", "binary": "Binary", "none": "None"}
	costs = map[string]string{"tick": "EachTick", "slow": "Slow", "static": "Static"}

	levels = map[string]string{
		"global": "Global", "gpu": "GPU", "instance": "Instance", "compute": "ComputeInstance", "link": "Link",
		"switch": "Switch", "cpu": "CPU", "core": "Core", "vgpu": "VGPU", "connectx": "ConnectX",
	}
)

// readFacts returns the facts by field id.
func readFacts() (map[int]fact, error) {
	rows, err := readTable(factsCSV, 8)
	if err != nil {
		return nil, fmt.Errorf("read facts.csv: %w", err)
	}
	out := map[int]fact{}
	for _, row := range rows {
		ids, err := expand(row[0])
		if err != nil {
			return nil, fmt.Errorf("read facts.csv: %w", err)
		}
		f, err := readFact(row)
		if err != nil {
			return nil, fmt.Errorf("read facts.csv: ids %q: %w", row[0], err)
		}
		for _, id := range ids {
			if _, dup := out[id]; dup {
				return nil, fmt.Errorf("read facts.csv: id %d twice", id)
			}
			out[id] = f
		}
	}
	return out, nil
}

func readFact(row []string) (fact, error) {
	f := fact{kind: kinds[row[1]], level: levels[row[2]], unit: row[3], cost: costs[row[4]], help: row[7]}
	if f.kind == "" || f.level == "" || f.cost == "" {
		return f, fmt.Errorf("unknown kind, level or cost in %q", row)
	}
	if f.kind != "Int64" && f.kind != "Double" {
		return f, nil // no numbers, so no range
	}
	r, ok := ranges[f.unit]
	if !ok {
		return f, fmt.Errorf("unknown unit %q", f.unit)
	}
	f.min, f.max = r.min, r.max
	if row[5] == "" && row[6] == "" {
		return f, nil
	}
	var errMin, errMax error
	f.min, errMin = strconv.ParseFloat(row[5], 64)
	f.max, errMax = strconv.ParseFloat(row[6], 64)
	if errMin != nil || errMax != nil || f.min >= f.max {
		return f, fmt.Errorf("bad range %q to %q", row[5], row[6])
	}
	return f, nil
}

// baseUnit is a name for a multiple of another field's reading.
type baseUnit struct {
	id     int
	name   string
	of     int
	unit   string
	factor float64
}

func readBaseUnits() ([]baseUnit, error) {
	rows, err := readTable(baseUnitsCSV, 5)
	if err != nil {
		return nil, fmt.Errorf("read base_units.csv: %w", err)
	}
	var out []baseUnit
	for _, row := range rows {
		id, err1 := strconv.Atoi(row[0])
		of, err2 := strconv.Atoi(row[2])
		factor, err3 := strconv.ParseFloat(row[4], 64)
		if err1 != nil || err2 != nil || err3 != nil || factor <= 0 {
			return nil, fmt.Errorf("read base_units.csv: bad row %q", row)
		}
		out = append(out, baseUnit{id: id, name: row[1], of: of, unit: row[3], factor: factor})
	}
	return out, nil
}

// readTable returns the rows of an embedded table without its heading.
func readTable(b []byte, cells int) ([][]string, error) {
	r := csv.NewReader(bytes.NewReader(b))
	r.Comment = '#'
	r.FieldsPerRecord = cells
	rows, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	return rows[1:], nil
}

// expand reads a list of ids and ranges: "400-408,451".
func expand(s string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		first, err1 := strconv.Atoi(lo)
		last, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || last < first {
			return nil, fmt.Errorf("bad ids %q", s)
		}
		for id := first; id <= last; id++ {
			out = append(out, id)
		}
	}
	return out, nil
}
