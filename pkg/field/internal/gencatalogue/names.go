package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// names are the spellings of one field id in go-dcgm.
type names struct {
	current []string // DCGM's own, sorted
	legacy  []string // earlier spellings, those of DCGM 1.x included
}

// readNames reads go-dcgm's two maps (current and legacy names) and its list of
// DCGM 1.x names.
func readNames(dir string) (map[int]*names, error) {
	file := filepath.Join(dir, "const_fields.go")
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %q: %w", file, err)
	}
	out := map[int]*names{}
	at := func(id int) *names {
		if out[id] == nil {
			out[id] = &names{}
		}
		return out[id]
	}
	current, err := readMap(tree, "dcgmFields")
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", file, err)
	}
	legacy, err := readMap(tree, "legacyDCGMFields")
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", file, err)
	}
	if err := addLegacyCSV(filepath.Join(dir, "legacy_fields.csv"), legacy); err != nil {
		return nil, err
	}
	for name, id := range current {
		at(id).current = append(at(id).current, name)
	}
	for name, id := range legacy {
		at(id).legacy = append(at(id).legacy, name)
	}
	for _, n := range out {
		slices.Sort(n.current)
		slices.Sort(n.legacy)
	}
	return out, nil
}

// readMap returns the entries of a package-level map literal of names to ids.
func readMap(tree *ast.File, name string) (map[string]int, error) {
	for _, decl := range tree.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			v := spec.(*ast.ValueSpec)
			if v.Names[0].Name != name || len(v.Values) != 1 {
				continue
			}
			lit, ok := v.Values[0].(*ast.CompositeLit)
			if !ok {
				return nil, fmt.Errorf("variable %q is not a map literal", name)
			}
			return readLiteral(lit)
		}
	}
	return nil, fmt.Errorf("no variable %q", name)
}

func readLiteral(lit *ast.CompositeLit) (map[string]int, error) {
	out := map[string]int{}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return nil, fmt.Errorf("map literal holds a %T", e)
		}
		key, okKey := kv.Key.(*ast.BasicLit)
		value, okValue := kv.Value.(*ast.BasicLit)
		if !okKey || !okValue {
			return nil, fmt.Errorf("map literal holds something else than literals")
		}
		name, err := strconv.Unquote(key.Value)
		if err != nil {
			return nil, fmt.Errorf("unquote %s: %w", key.Value, err)
		}
		id, err := strconv.Atoi(value.Value)
		if err != nil {
			return nil, fmt.Errorf("read id of %q: %w", name, err)
		}
		out[name] = id
	}
	return out, nil
}

// addLegacyCSV adds what legacy_fields.csv lists, and fails where it
// contradicts the map.
func addLegacyCSV(file string, legacy map[string]int) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return fmt.Errorf("read %q: %w", file, err)
	}
	for _, row := range rows[1:] {
		id, err := strconv.Atoi(row[1])
		if err != nil {
			return fmt.Errorf("read %q: %w", file, err)
		}
		if have, ok := legacy[row[0]]; ok && have != id {
			return fmt.Errorf("read %q: %q is %d here and %d in const_fields.go", file, row[0], id, have)
		}
		legacy[row[0]] = id
	}
	return nil
}

// chosen names where the rule of classic does not find what the CSV files of
// dcgm-exporter use.
var chosen = map[int]string{
	112:  "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", // CLOCK_THROTTLE_REASONS is its name of DCGM 3
	520:  "DCGM_FI_DEV_VGPU_VM_ID",           // the other one marks the begin of a range
	1300: "DCGM_FI_DEV_CONNECTX_HEALTH",      // the same
}

// extra are names of later DCGM versions for fields that kept number and unit.
var extra = map[int][]string{
	1421: {"DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_COUNT_NS"}, // DCGM 4.7's header
}

// classic splits the names of a field into the one that dcgm-exporter's CSV
// files use (up to 4.8), the one that it has been renamed to, if it was, and all but
// the first. DCGM 4.6 renamed many fields and go-dcgm keeps the name before that, which
// is the one in the files, as a legacy name in capitals; names of DCGM 1.x are in small
// letters.
func (n *names) classic(id int) (name, renamed string, aliases []string) {
	all := slices.Concat(n.current, n.legacy, extra[id])
	name = chosen[id]
	if name == "" {
		name = n.current[0]
		if i := slices.IndexFunc(n.legacy, func(s string) bool { return strings.HasPrefix(s, "DCGM_") }); i >= 0 {
			name, renamed = n.legacy[i], n.current[0]
		}
	}
	aliases = slices.DeleteFunc(all, func(s string) bool { return s == name })
	slices.Sort(aliases)
	return name, renamed, slices.Compact(aliases)
}
