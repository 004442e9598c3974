// Command documents copies the files of deploy/packages/files, which are installed as they are in the source, to where they
// will be, and corrects the links of pages: to where the other file is installed or, if it is not, to the project's home. Without
// a home such a link becomes text that names the file.
//
//	documents -home https://github.com/OWNER/warpgauge -ref v1.4.0 -to FOLDER    as in the packages
//	documents -home … -ref … -to FOLDER -tarball                                 where the source has them
//	documents -home … -ref … -check FOLDER                                       find links of pages that lead nowhere
//
// It is run in the source tree.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	var d documents
	to := flag.String("to", "", "write to this `folder`")
	check := flag.String("check", "", "check the pages below this `folder`")
	flag.StringVar(&d.home, "home", "", "`address` of the source")
	flag.StringVar(&d.ref, "ref", "main", "tag or commit of the source")
	tarball := flag.Bool("tarball", false, "files lie as in the source")
	flag.Parse()
	err := d.read("deploy/packages/files", *tarball)
	if err == nil && *to != "" {
		err = d.write(*to)
	}
	if err == nil && *check != "" {
		err = d.check(*check)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "documents:", err)
		os.Exit(1)
	}
}

// documents knows where each file of the source is installed.
type documents struct {
	home, ref string
	sources   []string
	installed map[string]string
}

func (d *documents) read(table string, asSource bool) error {
	text, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	d.installed = make(map[string]string)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 2 {
			return fmt.Errorf("%s: %q is not a pattern and a path", table, line)
		}
		found, err := filepath.Glob(f[0])
		if err != nil || len(found) == 0 {
			return errors.Join(fmt.Errorf("%s: there is no %s", table, f[0]), err)
		}
		for _, source := range found {
			to := f[1]
			if strings.HasSuffix(to, "/") {
				to += filepath.Base(source)
			}
			if asSource {
				to = source
			}
			if d.installed[source] == "" { // the first matching line wins
				d.sources, d.installed[source] = append(d.sources, source), to
			}
		}
	}
	return nil
}

func (d *documents) write(root string) error {
	for _, source := range d.sources {
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		info, err := os.Stat(source)
		if err != nil {
			return err
		}
		if filepath.Ext(source) == ".md" {
			data = []byte(d.page(source, string(data)))
		}
		to := filepath.Join(root, d.installed[source])
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644|info.Mode()&0o111); err != nil {
			return err
		}
	}
	return nil
}

var link = regexp.MustCompile(`(!?)\[([^\]]*)\]\(([^)\s]+)\)`)

// page returns a page with its links adjusted to the place where it is installed.
func (d *documents) page(source, text string) string {
	return link.ReplaceAllStringFunc(text, func(whole string) string {
		m := link.FindStringSubmatch(whole)
		path, fragment, _ := strings.Cut(m[3], "#")
		if path == "" || strings.Contains(path, ":") {
			return whole
		}
		if fragment != "" {
			fragment = "#" + fragment
		}
		target := filepath.Join(filepath.Dir(source), path)
		if to := d.place(target); to != "" {
			if relative, err := filepath.Rel(filepath.Dir(d.installed[source]), to); err == nil {
				return fmt.Sprintf("%s[%s](%s%s)", m[1], m[2], relative, fragment)
			}
		}
		if d.home == "" {
			return fmt.Sprintf("%s (`%s` of the source)", m[2], target)
		}
		return fmt.Sprintf("%s[%s](%s%s%s)", m[1], m[2], d.address(), target, fragment)
	})
}

func (d *documents) address() string { return d.home + "/blob/" + d.ref + "/" }

// place returns where a file or folder of the source is installed; "" if nowhere or in several places.
func (d *documents) place(target string) string {
	if to, ok := d.installed[target]; ok {
		return to
	}
	place := ""
	for _, source := range d.sources {
		name, ok := strings.CutPrefix(source, target+"/")
		if !ok {
			continue
		}
		folder, ok := strings.CutSuffix(d.installed[source], "/"+name)
		if !ok || place != "" && place != folder {
			return ""
		}
		place = folder
	}
	return place
}

// check finds links of installed pages that lead neither to an installed file nor to one in the source.
func (d *documents) check(root string) error {
	pages := 0
	var bad []error
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || filepath.Ext(path) != ".md" {
			return err
		}
		pages++
		text, err := os.ReadFile(path)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, _, _ := strings.Cut(m[3], "#")
			switch source, ours := strings.CutPrefix(target, d.address()); {
			case d.home != "" && ours:
				target = source
			case target == "" || strings.Contains(target, ":"):
				continue
			default:
				target = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(target); err != nil {
				bad = append(bad, fmt.Errorf("%s: %s leads nowhere: %w", path, m[0], err))
			}
		}
		return err
	})
	if pages == 0 {
		bad = append(bad, fmt.Errorf("no page is below %s", root))
	}
	return errors.Join(append(bad, err)...)
}
