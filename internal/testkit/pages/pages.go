// Package pages parses the repository's Markdown files for tests: those of docs check links, names and words, those
// of cmd check commands.
package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"warpgauge/internal/testkit"
)

// Read returns every Markdown file below root, the repository, by relative path.
func Read(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return filepath.SkipDir // .git, .tools, third-party pages
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // files of the repository, in tests
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		out[name] = string(text)
		return err
	})
	testkit.Must(t, err)
	if len(out) < 10 {
		t.Fatalf("found %d pages only", len(out))
	}
	return out
}

var (
	fenced   = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	indented = regexp.MustCompile(`(?m)^(?:    .*\n?)+`)
)

// Code returns the fenced and indented blocks of a page.
func Code(text string) []string {
	var out []string
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return append(out, indented.FindAllString(fenced.ReplaceAllString(text, ""), -1)...)
}

// Commands returns the words of each command in a page's blocks that runs one of the programs, also through sudo or
// after the -- of another program.
func Commands(text string, programs ...string) [][]string {
	var out [][]string
	for _, block := range Code(text) {
		for line := range strings.SplitSeq(strings.ReplaceAll(block, "\\\n", " "), "\n") {
			for _, words := range split(line) {
				if i := slices.Index(words, "--"); i >= 0 {
					words = words[i+1:]
				}
				for len(words) > 0 && (words[0] == "$" || words[0] == "sudo") {
					words = words[1:]
				}
				if len(words) > 0 && slices.Contains(programs, words[0]) {
					out = append(out, words)
				}
			}
		}
	}
	return out
}

// Check compares each command of the pages that runs one of the programs with the program's commands and flags. It calls run
// with the page, the subcommand and the arguments of complete ones, and returns their number.
func Check(t testing.TB, pages map[string]string, root *cli.Command, run func(path string, cmd *cli.Command, args []string), programs ...string) (checked int) {
	t.Helper()
	for path, text := range pages {
		for _, words := range Commands(text, programs...) {
			args, cmd := words[1:], root
			if slices.Contains(args, "…") || len(args) > 0 && strings.HasPrefix(args[0], "(") {
				continue // an incomplete command, or a command's output
			}
			for _, w := range args {
				if sub := cmd.Command(w); sub != nil && cmd == root {
					cmd = sub
				}
				name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
				known := func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }
				if strings.HasPrefix(w, "-") && w != "-" && !slices.Contains([]string{"help", "h", "version"}, name) && !slices.ContainsFunc(slices.Concat(root.Flags, cmd.Flags), known) {
					t.Errorf("%s: %s: there is no %s", path, strings.Join(words, " "), w)
				}
			}
			if cmd == root && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				t.Errorf("%s: %s: there is no such command", path, strings.Join(words, " "))
			}
			checked++
			run(path, cmd, args)
		}
	}
	return checked
}

// split splits a line like a shell: into commands at pipes, redirections, ; and &, up to a comment.
func split(line string) [][]string {
	var (
		commands [][]string
		words    []string
		word     strings.Builder
		quote    rune
		inside   bool // inside a word
	)
	end := func() {
		if inside {
			words = append(words, word.String())
		}
		word.Reset()
		inside = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inside = r, true
		case quote == 0 && (r == ' ' || r == '\t'):
			end()
		case quote == 0 && strings.ContainsRune("|>;&", r):
			end()
			commands, words = append(commands, words), nil
		case quote == 0 && r == '#' && !inside:
			end()
			return append(commands, words)
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	end()
	return append(commands, words)
}
