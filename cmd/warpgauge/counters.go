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
)

// counters reads and parses the counters CSV.
type counters struct {
	cfg   *config.Config
	found *config.Counters
}

// newCounters takes the CSV at path, or if that is empty the one that is configured.
func newCounters(cfg *config.Config, path string) *counters {
	return &counters{cfg: cfg, found: cfg.Counters(path)}
}

// read returns the content and the name of the CSV.
func (c *counters) read(ctx context.Context) ([]byte, string, error) {
	return c.found.Read(ctx, etc.DefaultCounters())
}

// parse returns the list and all problems of it.
func (c *counters) parse(data []byte, name string) (field.List, []field.Problem, error) {
	return field.Parse(bytes.NewReader(data), field.ParseOptions{File: name, Strict: c.cfg.Strict})
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
func (c *counters) list(data []byte, name string, log *zap.Logger) (field.List, error) {
	list, problems, err := c.parse(data, name)
	e := &countersError{name: name}
	for _, p := range problems {
		if p.Severity == field.Error {
			e.problems = append(e.problems, p)
		} else {
			log.Warn(p.Message, zap.String("file", p.File), zap.Int("line", p.Line), zap.Int("column", p.Column))
		}
	}
	switch {
	case err == nil:
		return list, nil
	case len(e.problems) > 0:
		return field.List{}, e
	}
	return field.List{}, fmt.Errorf("parse counters file %q: %w", name, err)
}

// first reads the CSV at start. All its errors are for the user to correct.
func (c *counters) first(ctx context.Context, log *zap.Logger) (field.List, []byte, error) {
	data, name, err := c.read(ctx)
	if err != nil {
		return field.List{}, nil, err
	}
	list, err := c.list(data, name, log)
	if err != nil {
		return field.List{}, nil, err
	}
	if len(list.Fields) == 0 {
		log.Warn("the counters file asks for nothing", zap.String("file", name))
	}
	log.Info("counters read", zap.String("file", name), zap.Int("fields", len(list.Fields)))
	return list, data, nil
}

// count writes "1 error" and "2 errors".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
