// Package captures holds nvidia-smi's output on real boards, from public dumps: numbers and their names as facts, each
// column with its address. Tests compare units, ranges and rules with it, because simulations share the project's mistakes.
package captures

import (
	_ "embed"
	"encoding/csv"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

//go:embed nvidia.csv
var nvidia string

// Board is nvidia-smi's output for one GPU.
type Board struct {
	Name   string
	Source string // the dump's address
	// Readings holds texts by name: "csv:power.draw" as in --query-gpu, "xml:fb_memory_usage/total" by the elements
	// of -q -x below gpu.
	Readings map[string]string
}

// NVIDIA returns all captured boards.
func NVIDIA(t testing.TB) []Board {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(nvidia)).ReadAll()
	testkit.Must(t, err)
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

// First returns the first of the named readings that the board has with a value other than "N/A" or the like.
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
