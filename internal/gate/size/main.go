// Command size counts what a new engineer of the exporter has to read, and fails if it
// is more than the limits: lines of Go and C in the binary without the simulated GPUs,
// packages, and files over which the methods of one type are spread.
//
//	go run ./internal/gate/size
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of the product. There is none for edges, which about 60 would suit. The limit of
// lines was 40,000 and that of packages 23 when the tree was redesigned; raise them for what users
// can see only: the JSON API, the live page, the terminal view, the flight recorder, verdicts on
// devices and programs that act on them, lists that a server delivers, and the names of AMD's exporter.
const (
	maxGo       = 70_000
	maxC        = 1_500
	maxPackages = 43
	maxFiles    = 3  // with methods of one type
	maxFolder   = 25 // files of a collector's folder
	maxFleet    = 2_950
)

// program is what is counted; simulation is in it but not counted.
const (
	program    = "warpgauge/cmd/warpgauge"
	simulation = "warpgauge/collectors/fake"
)

// fleet is the reference server. Without comments and blank lines it has about 2,500.
func fleet() []string { return []string{"cmd/warpgauge-fleet", "extensions/remote/fleet"} }

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath, Dir                   string
	GoFiles, CgoFiles, CFiles, HFiles []string
	Imports                           []string
}

func run(w io.Writer) error {
	packages, err := list()
	if err != nil {
		return err
	}
	var goLines, cLines, edges, made int
	var errs []error
	for _, p := range packages {
		source := slices.DeleteFunc(slices.Concat(p.GoFiles, p.CgoFiles), fromProto)
		if len(source) == 0 {
			made++
			continue
		}
		n, err := p.lines(source)
		m, errC := p.lines(slices.Concat(p.CFiles, p.HFiles))
		if err := errors.Join(err, errC); err != nil {
			return err
		}
		goLines, cLines = goLines+n, cLines+m
		for _, i := range p.Imports {
			if own(i) {
				edges++
			}
		}
		fmt.Fprintf(w, "%7d Go %6d C %4d files  %s\n", n, m, len(source), p.ImportPath) //nolint:errcheck // to the terminal
		if len(source) > maxFolder && strings.Contains(p.ImportPath, "/collectors/") {
			errs = append(errs, fmt.Errorf("%s has %d files, at most %d: cut an idea out into a sub-package", p.ImportPath, len(source), maxFolder))
		}
		spread, err := p.spread(source)
		if err != nil {
			return err
		}
		errs = append(errs, spread...)
	}
	fmt.Fprintf(w, "%d lines of Go, %d of C, %d packages, %d edges between them (without %s)\n", //nolint:errcheck // to the terminal
		goLines, cLines, len(packages)-made, edges, simulation)
	reference := 0
	for _, folder := range fleet() {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return err
		}
		files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
		n, err := (&pkg{}).lines(files)
		if err != nil {
			return err
		}
		reference += n
	}
	fmt.Fprintf(w, "%d lines of Go of the reference server\n", reference) //nolint:errcheck // to the terminal
	errs = append(errs, atMost("lines of Go of the reference server", reference, maxFleet),
		atMost("lines of Go", goLines, maxGo), atMost("lines of C", cLines, maxC), atMost("packages", len(packages)-made, maxPackages))
	return errors.Join(errs...)
}

func atMost(what string, got, most int) error {
	if got <= most {
		return nil
	}
	return fmt.Errorf("%d %s, at most %d", got, what, most)
}

// list returns the packages of this module that the program links.
func list() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,CgoFiles,CFiles,HFiles,Imports", program) //nolint:noctx // ends by itself
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if own(p.ImportPath) {
			all = append(all, p)
		}
	}
}

// fromProto reports whether a file is made from a .proto file, which is what is read.
func fromProto(name string) bool { return strings.HasSuffix(name, ".pb.go") }

func own(path string) bool { return strings.HasPrefix(path, "warpgauge/") && path != simulation }

func (p *pkg) lines(files []string) (int, error) {
	n := 0
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(p.Dir, f))
		if err != nil {
			return 0, err
		}
		n += bytes.Count(text, []byte{'\n'})
	}
	return n, nil
}

// spread returns an error for each type with methods in too many files.
func (p *pkg) spread(files []string) ([]error, error) {
	where := map[string][]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				if t := receiver(fn.Recv.List[0].Type); !slices.Contains(where[t], name) {
					where[t] = append(where[t], name)
				}
			}
		}
	}
	var errs []error
	for t, in := range where {
		if len(in) > maxFiles {
			errs = append(errs, fmt.Errorf("%s.%s has methods in %d files, at most %d: %s", p.ImportPath, t, len(in), maxFiles, strings.Join(in, " ")))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs, nil
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}
