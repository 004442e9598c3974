package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"warpgauge/etc"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
)

// counters reads and parses the counters CSV.
type counters struct {
	cfg   *config.Config
	found *config.Counters
	level *zap.AtomicLevel // of the log; nil: it does not change
}

// newCounters takes the CSV at path, or if that is empty the one that is configured.
func newCounters(a *app, cfg *config.Config, path string) *counters {
	readMap := func(ctx context.Context, namespace, name string) ([]byte, error) {
		return kube.ReadConfigMap(ctx, namespace, name, "warpgauge/"+a.build.Version)
	}
	return &counters{cfg: cfg, found: cfg.Counters(path, readMap)}
}

// read returns the content of the CSV and of the configuration file.
func (c *counters) read(ctx context.Context) (*config.Content, error) {
	return c.found.Read(ctx, etc.DefaultCounters())
}

// parse returns the list and all problems of it.
func (c *counters) parse(in *config.Content) (field.List, []field.Problem, error) {
	list, problems, err := field.Parse(bytes.NewReader(in.CSV), field.ParseOptions{File: in.Name, Strict: c.cfg.Strict})
	if err == nil {
		if err = in.YAML.Apply(list); err != nil {
			err = fmt.Errorf("%w (the list is %s)", err, in.Name)
		}
	}
	if err == nil {
		var more []field.Problem
		list, more = c.cfg.Named(list, in)
		problems = append(problems, more...)
	}
	in.YAML.Place(in.Name, problems)
	return list, problems, err
}

// countersError is everything that is wrong with a counters CSV.
type countersError struct {
	name     string
	problems []field.Problem // of severity field.Error
}

func (e *countersError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "counters file %q has %s", e.name, count(len(e.problems), "error"))
	for i := range e.problems {
		b.WriteString("\n  " + e.problems[i].Error())
	}
	return b.String()
}

// list is parse for the exporter: warnings go to the log, errors into the error.
func (c *counters) list(in *config.Content, log *zap.Logger) (field.List, error) {
	list, problems, err := c.parse(in)
	e := &countersError{name: in.Name}
	for _, p := range problems {
		if p.Severity == field.Error {
			e.problems = append(e.problems, p)
		} else {
			log.Warn(p.Message, append(place(p), zap.String("file", p.File))...)
		}
	}
	switch {
	case err == nil:
		c.cfg.Use(in, log, c.level)
		return list, nil
	case len(e.problems) > 0:
		return field.List{}, e
	}
	return field.List{}, err
}

// place is where a problem is, as far as that is known.
func place(p field.Problem) (out []zap.Field) {
	if p.Line > 0 {
		out = append(out, zap.Int("line", p.Line))
	}
	if p.Column > 0 {
		out = append(out, zap.Int("column", p.Column))
	}
	return out
}

// first reads the CSV at start. All its errors are for the user to correct.
func (c *counters) first(ctx context.Context, log *zap.Logger) (field.List, *config.Content, error) {
	in, err := c.read(ctx)
	if err != nil {
		return field.List{}, nil, err
	}
	list, err := c.list(in, log)
	if err != nil {
		return field.List{}, nil, err
	}
	if len(list.Fields) == 0 {
		log.Warn("the counters file asks for nothing", zap.String("file", in.Name))
	}
	log.Info("counters read", zap.String("file", in.Name), zap.Int("fields", len(list.Fields)))
	return list, in, nil
}

// count writes "1 error" and "2 errors".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
