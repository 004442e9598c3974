package field

import (
	"bytes"
	_ "embed" // dcgm.csv
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gocarina/gocsv"
)

// The file's head explains its columns. The exporter does not link go-dcgm, whose names it has.
//
//go:embed dcgm.csv
var dcgmCSV []byte

// dcgmRow is a row of dcgm.csv: a field, or several with neighbouring ids.
type dcgmRow struct {
	IDs     string  `csv:"id"`
	Name    string  `csv:"name"`
	Renamed string  `csv:"renamed"`
	Aliases string  `csv:"aliases"`
	Kind    string  `csv:"kind"`
	Level   string  `csv:"level"`
	Unit    string  `csv:"unit"`
	Cost    string  `csv:"cost"`
	Min     float64 `csv:"min"`
	Max     float64 `csv:"max"`
	Use     string  `csv:"use"`
	Vendor  string  `csv:"vendor"`
	Of      ID      `csv:"of"`
	Factor  float64 `csv:"factor"`
	Role    string  `csv:"role"`
	Help    string  `csv:"help"`
}

// readDCGM returns DCGM's fields by ascending id.
func readDCGM(text []byte) ([]Descriptor, error) {
	in := csv.NewReader(bytes.NewReader(text))
	in.Comment = '#'
	var rows []dcgmRow
	if err := gocsv.UnmarshalCSV(in, &rows); err != nil {
		return nil, err
	}
	var out []Descriptor
	scaled := map[ID][]ID{}
	for _, r := range rows {
		from, to, several := strings.Cut(r.IDs, "-")
		if !several {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		kind, level, cost := slices.Index(kindNames, r.Kind), slices.Index(levelNames, r.Level), slices.Index(costNames, r.Cost)
		if err1 != nil || err2 != nil || last < first || kind < 0 || level < 0 || cost < 0 {
			return nil, fmt.Errorf("bad row %+v", r)
		}
		for n := range ID(last - first + 1) {
			d := Descriptor{
				ID: ID(first) + n, Name: numbered(r.Name, n), Aliases: slices.Sorted(strings.FieldsSeq(numbered(r.Renamed+" "+r.Aliases, n))), Renamed: numbered(r.Renamed, n),
				Kind: Kind(kind), Level: Level(level), Unit: r.Unit, Min: r.Min, Max: r.Max, Cost: Cost(cost), Help: numbered(r.Help, n),
				Vendor: vendor(func(v *Vendor) bool { return v.Name == r.Vendor }), Total: r.Use == "counter",
			}
			if role, rank, _ := strings.Cut(r.Role, " "); role != "" {
				n, _ := strconv.Atoi(rank) // none is 0
				d.Meanings = []Meaning{{Role: Role(role), Rank: n}}
			}
			if r.Factor != 0 {
				d.Of, d.Factor = r.Of+n, r.Factor
				scaled[d.Of] = append(scaled[d.Of], d.ID)
			}
			out = append(out, d)
		}
	}
	for i := range out {
		out[i].Scaled = scaled[out[i].ID]
	}
	return out, nil
}

// numbered returns a cell for the n-th field of its row, from 0: {N} becomes N+n.
func numbered(cell string, n ID) string {
	before, rest, found := strings.Cut(cell, "{")
	if !found {
		return cell
	}
	number, after, _ := strings.Cut(rest, "}")
	first, _ := strconv.Atoi(number)
	return before + strconv.Itoa(first+int(n)) + numbered(after, n)
}
