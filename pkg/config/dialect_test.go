package config

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

// otherNames is a dialect with or without a file.
type otherNames struct {
	file string
	used *string // the file of the list in use
}

func (otherNames) Name() string { return "other" }

func (o otherNames) Read(ctx context.Context, readFile func(context.Context, string) ([]byte, error)) ([]byte, error) {
	if o.file == "" {
		return nil, nil
	}
	return readFile(ctx, o.file)
}

func (otherNames) Apply(list field.List, inPlace bool, file []byte) (field.List, []field.Problem) {
	list.Dialect = &field.Dialect{InPlace: inPlace, Names: string(file)}
	return list, []field.Problem{{Message: "a warning"}}
}

func (o otherNames) Use(file []byte, _ *zap.Logger, _ *zap.AtomicLevel) { *o.used = string(file) }

// TestDialect: a dialect's file belongs to the content of a list, and the dialect applies only with its names.
func TestDialect(t *testing.T) {
	file := filepath.Join(t.TempDir(), "names.json")
	used := ""
	s := NewSet(environment{}.Lookup)
	s.AddDialect(otherNames{file, &used}, "other: the names of another exporter.")
	c := testkit.Get(s.Config())(t)
	counters := c.Counters("", nil)
	_, err := counters.Read(t.Context(), []byte("x"))
	testkit.ErrorIf(t, err == nil, "a file that is not there is not an error of the dialect's")
	var before *Content
	for _, text := range []string{"one", "two"} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		in, err := counters.Read(t.Context(), []byte("x"))
		testkit.FatalIf(t, err != nil || !slices.Contains(counters.Paths(), file), "%v, %q is not watched: %q", err, file, counters.Paths())
		if before != nil && (in.Equal(before) || in.Hash() == before.Hash()) {
			t.Errorf("another file of a dialect, and the same content: %s", in.Hash())
		}
		before = in
		for names, want := range map[string]*field.Dialect{
			"as-written": nil, "other": {InPlace: true, Names: text}, "new,other": {Names: text},
		} {
			c.FieldNames = names
			list, problems := c.Named(field.List{}, in)
			if got := list.Dialect; (got == nil) != (want == nil) || got != nil && (got.InPlace != want.InPlace || got.Names != want.Names) || len(problems) > 0 != (want != nil) {
				t.Errorf("names %s: got %+v, %v, want %+v", names, got, problems, want)
			}
		}
		if c.Use(in, nil, nil); used != text {
			t.Errorf("the dialect uses %q, want %q", used, text)
		}
	}
	in, err := c.Counters(file, nil).Read(t.Context(), nil)
	testkit.ErrorIf(t, err != nil || len(in.dialects) > 0 || !bytes.Equal(in.CSV, []byte("two")), "a list that was named has the dialect's file: %+v, %v", in, err)
}
