package simulated

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
)

// Function is a function that a scripted library can define.
type Function struct {
	Name  string
	Since int // first version of the library that has it, in the numbering of functions.def
}

var functionLine = regexp.MustCompile(`(?m)^[A-Z]+\((\w+), *(\d+)[,)]`)

// Functions lists the functions of functions.def in the order of their counters: FN for lines with arguments, STUB for
// lines without, or a library's own word.
func (l *Library) Functions() (out []Function) {
	text, err := fs.ReadFile(l.Sources, "functions.def")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, m := range functionLine.FindAllSubmatch(text, -1) {
		since, err := strconv.Atoi(string(m[2]))
		if err != nil {
			panic(err) // the expression matches digits only
		}
		out = append(out, Function{string(m[1]), since})
	}
	return out
}

// Symbols returns the functions of a library of a version, except the given ones, for Build.
func (l *Library) Symbols(version int, without []string) ([]string, error) {
	all := l.Functions()
	for _, name := range without {
		if !Has(all, name) {
			return nil, fmt.Errorf("leave out %q: the simulated %s has no such function in any version", name, l.Name)
		}
	}
	var out []string
	for _, f := range all {
		if f.Since <= version && !slices.Contains(without, f.Name) {
			out = append(out, f.Name)
		}
	}
	return out, nil
}

// Has reports whether the list has a function.
func Has(functions []Function, name string) bool {
	return slices.ContainsFunc(functions, func(f Function) bool { return f.Name == name })
}
