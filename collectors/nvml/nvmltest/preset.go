package nvmltest

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed presets/*.nvml
var presets embed.FS

// preset is a script without the lines that Go generates.
type preset struct {
	gpus  int
	model string
	lines []string
	mig   map[int][]string
}

// Presets returns the names for Config.Preset.
func Presets() []string {
	entries, err := presets.ReadDir("presets")
	if err != nil {
		panic(err) // it is embedded
	}
	var out []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".nvml"); name != "common" {
			out = append(out, name)
		}
	}
	return out
}

// readPreset handles three lines that the library does not: "preset NAME" includes another file, "boards N" sets the
// default number of GPUs, and "layout GPU PROFILE…" sets a GPU's MIG instances.
func readPreset(name string) (*preset, error) {
	text, err := presets.ReadFile(path.Join("presets", name+".nvml"))
	if err != nil {
		return nil, fmt.Errorf("no preset %q: there are %s", name, strings.Join(Presets(), ", "))
	}
	p := &preset{gpus: 1, mig: make(map[int][]string)}
	for l := range strings.Lines(string(text)) {
		l = strings.TrimSpace(l)
		words := strings.Fields(l)
		switch {
		case len(words) == 0 || l[0] == '#':
			continue
		case words[0] == "preset":
			err = p.include(words[1])
		case words[0] == "boards":
			p.gpus, err = strconv.Atoi(words[1])
		case words[0] == "layout":
			var gpu int
			gpu, err = strconv.Atoi(words[1])
			p.mig[gpu] = words[2:]
		default:
			p.lines = append(p.lines, l)
		}
		if err != nil {
			return nil, fmt.Errorf("preset %q: %q: %w", name, l, err)
		}
		if m, ok := strings.CutPrefix(l, "gpu * name "); ok {
			p.model = strings.TrimSpace(m)
		}
	}
	return p, nil
}

func (p *preset) include(name string) error {
	other, err := readPreset(name)
	if err != nil {
		return err
	}
	p.lines = slices.Concat(p.lines, other.lines)
	p.model, p.gpus = other.model, other.gpus
	return nil
}
