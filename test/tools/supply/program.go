package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// program is a built program with its linked modules.
type program struct {
	file, sha256 string
	modules      []module // sorted by path; Go's standard library is "std"
}

// module is a linked module with the texts that concern its linked packages.
type module struct {
	path, version string
	texts         []text
}

// text is a licence or notice.
type text struct {
	name string // path of the file within the module
	body string
	spdx []string // SPDX identifiers of its licences, if known
}

// standard is the name of Go's standard library in vulnerability databases.
const standard = "std"

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Version, Dir string
		Main               bool
		Replace            *struct{ Path, Version, Dir string }
	}
}

// readProgram returns a program's modules with the texts from the sources of its linked packages. It is an error if the
// program was not built from these sources.
func readProgram(file, source string) (program, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return program{}, err
	}
	sum, err := fileSum(file)
	if err != nil {
		return program{}, err
	}
	packages, root, err := linkedPackages(info, source)
	if err != nil {
		return program{}, err
	}
	modules := map[string]*module{standard: {path: standard, version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		modules[d.Path] = &module{path: d.Path, version: d.Version}
	}
	unused := maps.Clone(modules)
	for _, p := range packages {
		path, version, dir := standard, modules[standard].version, root
		switch m := p.Module; {
		case p.Standard:
		case m == nil || m.Main:
			continue
		case m.Replace != nil:
			path, version, dir = m.Replace.Path, m.Replace.Version, m.Replace.Dir
		default:
			path, version, dir = m.Path, m.Version, m.Dir
		}
		m := modules[path]
		if m == nil || m.version != version {
			return program{}, fmt.Errorf("the sources require %s %s, but the program was built without it", path, version)
		}
		delete(unused, path)
		if err := m.addTexts(dir, p.Dir); err != nil {
			return program{}, err
		}
	}
	for path := range unused {
		return program{}, fmt.Errorf("the program was built with %s, which the sources do not require", path)
	}
	out := program{file: filepath.Base(file), sha256: sum}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		m := modules[path]
		if !slices.ContainsFunc(m.texts, func(t text) bool { return !notice.MatchString(filepath.Base(t.name)) }) {
			return program{}, fmt.Errorf("no licence was found in %s %s", m.path, m.version)
		}
		out.modules = append(out.modules, *m)
	}
	return out, nil
}

// linkedPackages lists the program's packages with its build settings, and returns GOROOT.
func linkedPackages(info *debug.BuildInfo, source string) ([]listed, string, error) {
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard,Module")
	list.Dir, list.Stderr = source, os.Stderr
	list.Env = os.Environ()
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED":
			list.Env = append(list.Env, s.Key+"="+s.Value)
		case "-tags":
			list.Args = append(list.Args, "-tags="+s.Value)
		}
	}
	list.Args = append(list.Args, info.Path)
	out, err := list.Output()
	if err != nil {
		return nil, "", fmt.Errorf("go list %s in %s: %w", info.Path, source, err)
	}
	var packages []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, "", fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	return packages, strings.TrimSpace(string(root)), err
}

var (
	legal  = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|copyright|notice|patents)s?([-._].*)?$`)
	notice = regexp.MustCompile(`(?i)^(notice|patents)`)
	code   = regexp.MustCompile(`\.(go|s|c|h|py|sh|yml|yaml|json)$`)
)

// addTexts adds the licences and notices in a package's folder and its parents, up to the module's folder.
func (m *module) addTexts(root, dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if !e.Type().IsRegular() || !legal.MatchString(e.Name()) || code.MatchString(e.Name()) ||
				slices.ContainsFunc(m.texts, func(t text) bool { return t.name == name }) {
				continue
			}
			body, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			t := text{name: name, body: strings.TrimSpace(strings.ReplaceAll(string(body), "\r\n", "\n"))}
			if !notice.MatchString(e.Name()) {
				t.spdx = identify(body)
			}
			m.texts = append(m.texts, t)
		}
		if dir == root || dir == filepath.Dir(dir) {
			break
		}
	}
	slices.SortFunc(m.texts, func(a, b text) int { return strings.Compare(a.name, b.name) })
	return nil
}

// identify returns the SPDX identifiers of a text that consists mostly of licences.
func identify(body []byte) (ids []string) {
	cover := licensecheck.Scan(body)
	if cover.Percent < 75 {
		return nil
	}
	for _, m := range cover.Match {
		if !m.IsURL && !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// licenses returns the SPDX identifiers of all texts.
func (m *module) licenses() (ids []string) {
	for _, t := range m.texts {
		ids = append(ids, t.spdx...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func fileSum(path string) (string, error) {
	text, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}
