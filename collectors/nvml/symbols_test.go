//go:build linux && cgo

package nvml

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goNVML = "github.com/NVIDIA/go-nvml/pkg/nvml"

// TestEveryCallIsAskedFor finds, in the source of this package, each call of
// go-nvml, and in go-nvml's source the functions of NVML behind it. Each of those
// must be known to be there: required at load, or a name that has is asked for.
func TestEveryCallIsAskedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checks the package")
	}
	pkg := checkPackage(t)
	behind := bindings(t)
	asked := pkg.askedFor()
	for _, s := range required {
		asked[s] = true
	}
	calls := pkg.callsOfGoNVML()
	if len(calls) < 5 {
		t.Fatalf("found %d calls of go-nvml only: %v", len(calls), calls)
	}
	for _, c := range calls {
		needs := behind[c.method]
		if len(needs) == 0 && !strings.HasSuffix(c.method, "V") { // V returns what has V1, V2 …
			t.Errorf("%s: %s: found no function of NVML behind it; name it in harmless if there is none", c.at, c.method)
		}
		for _, versions := range needs {
			if !slices.ContainsFunc(versions, func(s string) bool { return asked[s] }) {
				t.Errorf("%s: %s calls %s, which is not looked up: a driver without it would end the process", c.at, c.method, strings.Join(versions, " or "))
			}
		}
	}
}

// TestSymbols holds the list of functions against the source, and the tables against
// those of the simulated library.
func TestSymbols(t *testing.T) {
	def, err := os.ReadFile("nvmltest/lib/functions.def")
	if err != nil {
		t.Fatal(err)
	}
	since := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^[A-Z]+\((\w+), (\d+)[,)]`).FindAllStringSubmatch(string(def), -1) {
		if since[m[1]], err = strconv.Atoi(m[2]); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for _, name := range namedSymbols(t) {
		if _, ok := since[name]; ok { // else it is a type
			want = append(want, name)
		}
	}
	if diff := cmp.Diff(want, symbols()); diff != "" {
		t.Errorf("symbols (-source +list):\n%s", diff)
	}
	for _, r := range allReadings() {
		for _, g := range *r.call() {
			if branch := since[g.symbol]; g.since != 0 && g.since != branch && g.since != 580 || g.since == 0 && branch > oldestDriver {
				t.Errorf("%s is there since driver %d, the table says %d", g.symbol, branch, g.since)
			}
		}
	}
}

// checkedPackage is the source of this package, without tests.
type checkedPackage struct {
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
}

func checkPackage(t *testing.T) *checkedPackage {
	t.Helper()
	exports := map[string]string{}
	for line := range strings.Lines(goList(t, "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	p := &checkedPackage{fset: token.NewFileSet(), info: &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}}}
	usesC := map[string]bool{}
	for _, name := range strings.Fields(goList(t, "-f", `{{join .CgoFiles " "}}`, ".")) {
		usesC[name] = true
	}
	for _, name := range strings.Fields(goList(t, "-f", `{{join .GoFiles " "}} {{join .CgoFiles " "}}`, ".")) {
		f, err := parser.ParseFile(p.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, f)
	}
	conf := types.Config{
		FakeImportC: true,
		Error: func(err error) { // what is C's has no type here
			var e types.Error
			if !errors.As(err, &e) || !usesC[p.fset.File(e.Pos).Name()] {
				t.Error(err)
			}
		},
		Importer: importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
			return os.Open(exports[path])
		}),
	}
	_, _ = conf.Check("warpgauge/collectors/nvml", p.fset, p.files, p.info) // errors are reported above
	return p
}

func goList(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %q: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

// goCall is a call of go-nvml; method is "Interface.DeviceGetCount" or
// "Device.GetUUID".
type goCall struct{ at, method string }

func (p *checkedPackage) callsOfGoNVML() (out []goCall) {
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr) // a call, or a method that a table calls
			if !ok {
				return true
			}
			fn, ok := p.info.Uses[sel.Sel].(*types.Func)
			if !ok || fn.Pkg() == nil || fn.Pkg().Path() != goNVML {
				return true
			}
			if name := methodName(fn, p.info.Selections[sel]); !harmless[name] {
				at := p.fset.Position(sel.Pos())
				out = append(out, goCall{fmt.Sprintf("%s:%d", at.Filename, at.Line), name})
			}
			return true
		})
	}
	return out
}

func methodName(fn *types.Func, sel *types.Selection) string {
	if sel == nil {
		return "Interface." + fn.Name() // a function of the package calls that of the library
	}
	named, ok := types.Unalias(fn.Signature().Recv().Type()).(*types.Named)
	if !ok {
		return "Interface." + fn.Name()
	}
	return named.Obj().Name() + "." + fn.Name()
}

// harmless calls no function of NVML, or nvmlErrorString, which is required.
var harmless = map[string]bool{
	"Interface.New": true, "Interface.WithLibraryPath": true, "Return.Error": true, "Return.String": true,
	"Interface.ErrorString": true, "Interface.Extensions": true, "Interface.STRUCT_VERSION": true,
}

var nvmlFunction = regexp.MustCompile(`^nvml[A-Z]\w*$`)

// lookups ask whether the library has a function before anything else.
var lookups = [...]string{"has", "hasAll", "ask"}

// askedFor are the names of functions of NVML that has is called with, or that
// stand in a list, which loops ask for.
func (p *checkedPackage) askedFor() map[string]bool {
	out := map[string]bool{}
	note := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && nvmlFunction.MatchString(s) {
				out[s] = true
			}
		}
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				return n.Names[0].Name != "otherSymbols"
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(lookups[:], sel.Sel.Name) {
					for _, a := range n.Args {
						note(a)
					}
				}
			case *ast.CompositeLit:
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						e = kv.Value
					}
					note(e)
				}
			}
			return true
		})
	}
	return out
}

// bindings says which functions of NVML each method of go-nvml calls: a list of
// alternatives for each, of which go-nvml takes the newest that the library has.
func bindings(t *testing.T) map[string][][]string {
	t.Helper()
	dir := strings.TrimSpace(goList(t, "-f", "{{.Dir}}", goNVML))
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	b := &goBinding{funcs: map[string]*ast.FuncDecl{}, versions: map[string][]string{}, c: map[string]string{}}
	fset := token.NewFileSet()
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		b.read(f)
	}
	out := map[string][][]string{}
	for name, fn := range b.funcs {
		if recv, method, ok := strings.Cut(name, "."); ok {
			found := map[string][]string{}
			b.follow(fn, found, map[string]bool{})
			var needs [][]string
			for _, key := range slices.Sorted(maps.Keys(found)) {
				needs = append(needs, found[key])
			}
			out[interfaceOf(recv)+"."+method] = needs
		}
	}
	return out
}

// interfaceOf is the interface that a type of go-nvml implements.
func interfaceOf(recv string) string {
	if recv == "library" {
		return "Interface"
	}
	return strings.TrimPrefix(recv, "nvml")
}

type goBinding struct {
	funcs    map[string]*ast.FuncDecl // "nvmlDeviceGetUUID", "nvmlDevice.GetUUID"
	versions map[string][]string      // of the variables that stand for the newest version of a function
	c        map[string]string        // function → what it calls in C
}

func (b *goBinding) read(f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			b.funcs[funcName(d)] = d
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && d.Tok == token.VAR && len(v.Values) == 1 {
					if first, ok := v.Values[0].(*ast.Ident); ok {
						b.versions[v.Names[0].Name] = []string{first.Name}
					}
				}
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool { // nvmlInit = nvmlInit_v2
		a, ok := n.(*ast.AssignStmt)
		if !ok || a.Tok != token.ASSIGN || len(a.Lhs) != 1 {
			return true
		}
		name, isName := a.Lhs[0].(*ast.Ident)
		version, isVersion := a.Rhs[0].(*ast.Ident)
		if isName && isVersion && strings.HasPrefix(version.Name, name.Name+"_v") {
			b.versions[name.Name] = append(b.versions[name.Name], version.Name)
		}
		return true
	})
}

func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	recv := d.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	if id, ok := recv.(*ast.Ident); ok {
		return id.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

// follow collects what fn calls in C, by name or by the variable that chooses.
func (b *goBinding) follow(fn *ast.FuncDecl, found map[string][]string, seen map[string]bool) {
	name := funcName(fn)
	if seen[name] {
		return
	}
	seen[name] = true
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "C" {
				if nvmlFunction.MatchString(n.Sel.Name) && !strings.HasSuffix(n.Sel.Name, "_t") {
					found[n.Sel.Name] = []string{n.Sel.Name}
				}
				return false
			}
			b.followMethod(n.Sel.Name, found, seen)
		case *ast.Ident:
			if versions, ok := b.versions[n.Name]; ok {
				for _, v := range versions {
					found[n.Name] = append(found[n.Name], b.cNames(v, seen)...)
				}
			} else if callee := b.funcs[n.Name]; callee != nil && callee != fn {
				b.follow(callee, found, seen)
			}
		}
		return true
	})
}

// followMethod takes device.GetX, to which the methods of the library pass on.
func (b *goBinding) followMethod(name string, found map[string][]string, seen map[string]bool) {
	for full, callee := range b.funcs {
		if recv, method, ok := strings.Cut(full, "."); ok && method == name && strings.HasPrefix(recv, "nvml") {
			b.follow(callee, found, seen)
		}
	}
}

// cNames are the functions in C behind one version of a function.
func (b *goBinding) cNames(version string, seen map[string]bool) []string {
	found := map[string][]string{}
	if fn := b.funcs[version]; fn != nil {
		b.follow(fn, found, seen)
	}
	return slices.Sorted(maps.Keys(found))
}
