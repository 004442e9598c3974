// Command size counts the lines of each layer and fails above the limits of layers.txt. The limits only go down: a
// change that exceeds one must first cut something.
//
//	go run ./internal/gate/size
package main

import (
	"bytes"
	_ "embed" // layers.txt
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxFiles  = 3  // with methods of the same type
	maxFolder = 25 // Go files in a collector's folder
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run(w io.Writer) error {
	tree, err := readTree()
	if err != nil {
		return err
	}
	counts, err := tree.counts()
	if err != nil {
		return err
	}
	rows, err := parseLimits(limits)
	if err != nil {
		return err
	}
	var errs []error
	fmt.Fprintf(w, "%8s %8s %8s  %s\n", "now", "limit", "goal", "layer") //nolint:errcheck // to the terminal
	for _, r := range rows {
		n, known := counts[r.layer]
		if !known {
			errs = append(errs, fmt.Errorf("layers.txt: unknown layer %q", r.layer))
			continue
		}
		delete(counts, r.layer)
		fmt.Fprintf(w, "%8d %8d %8d  %s\n", n, r.limit, r.goal, r.layer) //nolint:errcheck // as above
		if n > r.limit {
			errs = append(errs, fmt.Errorf("%s: %d, at most %d", r.layer, n, r.limit))
		}
	}
	for layer, n := range counts {
		errs = append(errs, fmt.Errorf("layers.txt has no limit for %q (now %d)", layer, n))
	}
	return errors.Join(append(errs, tree.shape()...)...)
}

//go:embed layers.txt
var limits string

// limit is a row of layers.txt.
type limit struct {
	layer       string
	limit, goal int
}

// parseLimits reads rows of a limit, a goal and a layer's name.
func parseLimits(text string) (out []limit, err error) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 3 {
			return nil, fmt.Errorf("layers.txt: %q: write a limit, a goal and a layer", line)
		}
		r := limit{layer: strings.Join(f[2:], " ")}
		if _, err := fmt.Sscan(line, &r.limit, &r.goal); err != nil {
			return nil, fmt.Errorf("layers.txt: %w", err)
		}
		out = append(out, r)
	}
	return out, nil
}

// tree maps the repository's source files to their text.
type tree map[string][]byte

// readTree reads the files that git tracks and that people write.
func readTree() (tree, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate") //nolint:noctx // it always ends
	cmd.Stderr = os.Stderr
	names, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	out := tree{}
	for name := range strings.SplitSeq(string(names), "\x00") {
		if !slices.Contains([]string{".go", ".c", ".h", ".js", ".css", ".html"}, path.Ext(name)) || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		text, err := os.ReadFile(filepath.FromSlash(name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted but not committed
		}
		if err != nil {
			return nil, err
		}
		out[name] = text
	}
	return out, nil
}

// counts returns lines, packages and imports by layer.
func (t tree) counts() (map[string]int, error) {
	out := map[string]int{}
	core, edges := map[string]bool{}, map[string]bool{}
	for name, text := range t {
		layer := layerOf(name)
		if layer == "" {
			continue
		}
		out[layer] += bytes.Count(text, []byte{'\n'})
		if layer != coreLines || path.Ext(name) != ".go" {
			continue
		}
		dir := path.Dir(name)
		if strings.HasPrefix(name, "pkg/") {
			core[dir] = true
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return nil, err
		}
		for _, to := range ownImports(f) {
			edges[dir+" "+to] = true
		}
	}
	out["packages of the core"], out["edges of core and collectors"] = len(core), len(edges)
	return out, nil
}

const (
	modulePrefix = "warpgauge/"
	coreLines    = "core and collectors, lines of Go"
	cLines       = "C of the programs, lines"
	testLines    = "tests, simulations and kits, lines"
)

// layerOf returns the layer of a file; "" if its lines do not count.
func layerOf(name string) string {
	goFile := path.Ext(name) == ".go"
	top, rest, _ := strings.Cut(name, "/")
	second, _, _ := strings.Cut(rest, "/")
	switch {
	case isTest(name):
		return testLines
	case path.Ext(name) == ".c" || path.Ext(name) == ".h":
		return cLines
	case (top == "pkg" || top == "collectors") && goFile:
		return coreLines
	case top == "extensions":
		return "extensions/" + second + ", lines of Go and of the page"
	case name == "cmd/warpgauge/"+path.Base(name), strings.HasPrefix(name, "cmd/warpctl/"):
		return "cmd/" + second + ", lines of Go"
	case goFile:
		return "other programs, generators and benchmarks, lines of Go"
	}
	return ""
}

// isTest reports whether a file is a test or is only used by tests and simulated nodes.
func isTest(name string) bool {
	if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "collectors/fake/") || strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "internal/testkit/") ||
		strings.HasPrefix(name, "cmd/fleet-sim/") || strings.HasPrefix(name, "cmd/gpu-check/") {
		return true
	}
	for part := range strings.SplitSeq(path.Dir(name), "/") {
		if part == "testdata" || part == "simulated" || strings.HasSuffix(part, "test") {
			return true
		}
	}
	return false
}

// shape returns an error for each type whose methods are in too many files, for each collector
// with too many files, and for each import of a collector by another, or of an extension by another.
func (t tree) shape() []error {
	where, files := map[string][]string{}, map[string]int{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if layerOf(name) == testLines || path.Ext(name) != ".go" {
			continue
		}
		dir := path.Dir(name)
		if !bytes.Contains(t[name], []byte("//go:build !")) { // a stub has the same declarations
			files[dir]++
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, t[name], parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, to := range ownImports(f) {
			if neighbours(dir, to) {
				errs = append(errs, fmt.Errorf("%s imports %s: move what both need into the core", name, to))
			}
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				if r := dir + "." + receiver(fn.Recv.List[0].Type); !slices.Contains(where[r], name) {
					where[r] = append(where[r], name)
				}
			}
		}
	}
	for r, in := range where {
		if len(in) > maxFiles {
			errs = append(errs, fmt.Errorf("%s has methods in %d files, at most %d: %s", r, len(in), maxFiles, strings.Join(in, " ")))
		}
	}
	for dir, n := range files {
		if n > maxFolder && strings.HasPrefix(dir, "collectors/") {
			errs = append(errs, fmt.Errorf("%s has %d files, at most %d: cut an idea out into a sub-package", dir, n, maxFolder))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// ownImports returns the folders of this module that a file imports.
func ownImports(f *ast.File) (out []string) {
	for _, i := range f.Imports {
		if to, own := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), modulePrefix); own {
			out = append(out, to)
		}
	}
	return out
}

// neighbours reports whether two folders belong to different collectors, or to different extensions.
func neighbours(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	return (x[0] == "collectors" || x[0] == "extensions") && x[0] == y[0] && len(y) > 1 && x[1] != y[1] && y[1] != "internal"
}

// receiver returns the name of a receiver's type, without its parameters.
func receiver(t ast.Expr) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(t), "*"), "[")
	return name
}
