// Package captures has what nvidia-smi said on boards of others, from public dumps:
// numbers and their names as facts, each column with the address it was read from.
// Tests hold our units, ranges and rules against it, which our own simulations cannot do.
package captures

import (
	_ "embed"
	"encoding/csv"
	"strings"
	"testing"
)

//go:embed nvidia.csv
var nvidia string

// Board is nvidia-smi's output for one GPU.
type Board struct {
	Name   string
	Source string // its address
	// Readings are texts by name: "csv:power.draw" as --query-gpu calls it,
	// "xml:fb_memory_usage/total" by the elements of -q -x below gpu.
	Readings map[string]string
}

// NVIDIA returns the boards that there are.
func NVIDIA(t testing.TB) []Board {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(nvidia)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []Board
	for i, name := range rows[0][1:] {
		b := Board{Name: name, Source: rows[1][i+1], Readings: map[string]string{}}
		for _, row := range rows[2:] {
			if v := row[i+1]; v != "" {
				b.Readings[row[0]] = v
			}
		}
		out = append(out, b)
	}
	return out
}

// First returns the first of the readings that the board has and that is not "N/A" or its like.
func (b Board) First(names ...string) string {
	for _, n := range names {
		switch v := b.Readings[n]; strings.Trim(v, "[]") {
		case "", "N/A", "Not Supported", "Requested functionality has been deprecated", "Insufficient Permissions":
		default:
			return v
		}
	}
	return ""
}
