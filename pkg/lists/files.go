package lists

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// Parsed is a field list with all its problems. A list is parsed once.
type Parsed struct {
	Content  *config.Content
	Fields   field.List
	Problems []field.Problem
	Err      error // why there is no list; Problems may have the lines
}

// Files reads and parses the local list: a counters CSV or a ConfigMap, and the configuration file. It parses the lists
// of servers by the same rules. Only one goroutine at a time may call Read, Accept and the Parse methods.
type Files struct {
	*config.Counters
	cfg     *config.Config
	builtIn []byte
	level   *zap.AtomicLevel // log level, which a dialect may change; nil: fixed
}

// NewFiles returns Files for the lists that found reads; builtIn is the list used without any file.
func NewFiles(cfg *config.Config, found *config.Counters, builtIn []byte, level *zap.AtomicLevel) *Files {
	return &Files{found, cfg, builtIn, level}
}

// Read implements Local.
func (f *Files) Read(ctx context.Context) (*config.Content, error) {
	return f.Counters.Read(ctx, f.builtIn)
}

// Parse implements Local.
func (f *Files) Parse(in *config.Content) *Parsed {
	list, problems, err := field.Parse(bytes.NewReader(in.CSV), field.ParseOptions{File: in.Name, Strict: f.cfg.Strict})
	if err == nil {
		if err = in.YAML.Apply(list); err != nil {
			err = fmt.Errorf("%w (the list is %s)", err, in.Name)
		}
	}
	if err == nil {
		var more []field.Problem
		list, more = f.cfg.Named(list, in)
		problems = append(problems, more...)
	}
	in.YAML.Place(in.Name, problems)
	return &Parsed{in, list, problems, err}
}

// ParseDelivered parses the list of a server: a counters CSV, or a YAML configuration file that contains only a list.
func (f *Files) ParseDelivered(content []byte, origin string, isYAML bool) *Parsed {
	in, problems, err := config.ParseDelivered(content, origin, isYAML, f.cfg.DialectNames()...)
	if err != nil {
		return &Parsed{Err: err}
	}
	p := f.Parse(in)
	p.Problems = append(problems, p.Problems...)
	if p.Err != nil {
		return p
	}
	p.Fields.Fields = slices.Clone(p.Fields.Fields)
	in.YAML.ApplyInterval(p.Fields)
	at := make([]field.Problem, len(p.Fields.Fields))
	for i := range at {
		at[i].Line = p.Fields.Fields[i].Line
	}
	in.YAML.Place(in.Name, at)
	for i := range at {
		p.Fields.Fields[i].Line = at[i].Line
	}
	return p
}

// ProblemsError holds every error of a counters CSV.
type ProblemsError struct {
	name     string
	problems []field.Problem
}

func (e *ProblemsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "counters file %q has %s", e.name, config.Counted(len(e.problems), "error"))
	for i := range e.problems {
		b.WriteString("\n  " + e.problems[i].Error())
	}
	return b.String()
}

// Accept implements Local.
func (f *Files) Accept(p *Parsed, log *zap.Logger) (field.List, error) {
	e := &ProblemsError{name: p.Content.Name}
	for _, problem := range p.Problems {
		if problem.Severity == field.Error {
			e.problems = append(e.problems, problem)
		} else {
			log.Warn(problem.Message, append(place(problem), zap.String("file", problem.File))...)
		}
	}
	switch {
	case p.Err == nil:
		f.cfg.Use(p.Content, log, f.level)
		return p.Fields, nil
	case len(e.problems) > 0:
		return field.List{}, e
	}
	return field.List{}, p.Err
}

// place returns the line and column of a problem if they are known.
func place(p field.Problem) (out []zap.Field) {
	if p.Line > 0 {
		out = append(out, zap.Int("line", p.Line))
	}
	if p.Column > 0 {
		out = append(out, zap.Int("column", p.Column))
	}
	return out
}

// First reads the list at start. It returns all errors, for the user to correct.
func (f *Files) First(ctx context.Context, log *zap.Logger) (*Parsed, error) {
	in, err := f.Read(ctx)
	if err != nil {
		return nil, err
	}
	p := f.Parse(in)
	if _, err := f.Accept(p, log); err != nil {
		return nil, err
	}
	if len(p.Fields.Fields) == 0 {
		log.Warn("the counters file lists no fields", zap.String("file", in.Name))
	}
	log.Info("counters read", zap.String("file", in.Name), zap.Int("fields", len(p.Fields.Fields)))
	return p, nil
}
