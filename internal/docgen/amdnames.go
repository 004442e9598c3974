package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"warpgauge/extensions/amd"
	"warpgauge/pkg/field"
)

// amdPage lists the names of AMD's exporter that are served, and the others with a reason.
func amdPage() (any, error) {
	var b, absent strings.Builder
	blocks, seen := []string{}, false
	for _, n := range amd.Metrics() {
		if len(n.Sources) == 1 && n.Sources[0].ID == field.AMDRASErrors {
			if rest, is := strings.CutPrefix(n.Field, "GPU_ECC_CORRECT_"); is {
				blocks = append(blocks, "`"+strings.ToLower(rest)+"`")
			}
			if !seen {
				b.WriteString("| `gpu_ecc_correct_BLOCK`, `gpu_ecc_uncorrect_BLOCK`, `gpu_ecc_deferred_BLOCK` | | `amd_gpu_ras_errors_total` of a block; `bif` is `pcie_bif` | |\n")
			}
			seen = true
			continue
		}
		if n.Absent == "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", n.Name(""), n.Unit, amdOf(&n), amdAdded(&n))
		}
	}
	var why []string
	names := map[string][]string{}
	for _, n := range amd.Metrics() {
		if n.Absent == "" {
			continue
		}
		if names[n.Absent] == nil {
			why = append(why, n.Absent)
		}
		names[n.Absent] = append(names[n.Absent], "`"+n.Name("")+"`")
	}
	for _, reason := range why {
		fmt.Fprintf(&absent, "| %s | %s |\n", strings.Join(names[reason], ", "), reason)
	}
	return struct{ Names, Blocks, Absent string }{b.String(), strings.Join(blocks, ", "), absent.String()}, nil
}

// amdOf names the fields of a metric.
func amdOf(n *amd.Metric) string {
	switch n.Field {
	case amd.Nodes:
		return "GPUs that are reported, partitions each as one"
	case amd.Health:
		return "the verdict on the GPU: 1 healthy, 0 not"
	}
	var all []string
	for _, s := range n.Sources {
		d, _ := field.ByID(s.ID)
		text := "`" + d.Name
		for i, l := range s.Where {
			text += cmp.Or(map[bool]string{true: "{"}[i == 0], ",") + l.Name + `="` + l.Value + `"`
		}
		if s.Index.Prefix != "" {
			text += `{` + s.Index.From + `="` + s.Index.Prefix + `…"}`
		} else if len(s.Where) > 0 {
			text += "}"
		}
		text += "`"
		switch {
		case s.Scale > 1:
			text += " × " + strconv.FormatFloat(s.Scale, 'f', -1, 64)
		case s.Scale < 1:
			text += " ÷ " + strconv.FormatFloat(1/s.Scale, 'f', 0, 64)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// amdAdded names the labels that distinguish series of one device.
func amdAdded(n *amd.Metric) string {
	var all []string
	for _, s := range n.Sources {
		for _, l := range append(slices.Clone(s.Add), amd.Pair{Name: s.Index.To}) {
			if name := "`" + l.Name + "`"; l.Name != "" && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
