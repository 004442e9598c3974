package field

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"warpgauge/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sameList compares two lists except for line numbers.
func sameList(a, b List) string {
	return cmp.Diff(a, b, cmpopts.IgnoreFields(Field{}, "Line"), cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b *Descriptor) bool { return a == b }))
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"",
		"# c\n" + temp + ",gauge,h\n",
		temp + ", histogram, \"a, \"\"b\"\"\",interval=100ms buckets=1|2.5|1e3\r\n",
		"DCGM_FI_DEV_SM_CLOCK_HERTZ,histogram,h\nDCGM_FI_DEV_SM_CLOCK,histogram,\n",
		"\ufeff" + temp + ",gauge,\"a\r\r\nb\rc\"\r\r\n",
		temp + ",gauge,\"open\n" + power + ",gauge,\"x\"\n,\"\"\"\n\"\"\n",
		"DCGM_FI_DRIVER_VERSION,label,\x00\xff\x7f\ufffd\n" + temp + ",summary,\u00a0h\u2028\u0085\n",
		"dcgm_gpu_temp,untyped,h,;;\n,,\n\"\",\"\",\"\"\n\"" + temp + "\",\"gauge\",\"h\",\"interval=1s\"\n",
		"DCGM_FI_DEV_GPU_UTIL,gauge,h\nDCGM_FI_DEV_GPU_UTIL_RATIO,histogram,h\ndcgm_gpu_utilization,counter,h,names=both\n",
		"\xff\xfe", "a,b", "\"", ",,,,,,",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, text string, strict bool) {
		l, problems, err := Parse(strings.NewReader(text), ParseOptions{File: "f", Strict: strict})
		errors := 0
		lines := 1 + strings.Count(text, "\n")
		for _, p := range problems {
			if p.Severity == Error {
				errors++
			}
			testkit.ErrorIf(t, p.Line < 0 || p.Line > lines || p.Column < 0 || p.Message == "" || !utf8.ValidString(p.Message), "problem %+v in %d lines", p, lines)
		}
		if err != nil {
			testkit.ErrorIf(t, l.Fields != nil, "fields and error %v", err)
			return
		}
		testkit.FatalIf(t, errors > 0, "%d errors and no error: %v", errors, problems)
		for _, fd := range l.Fields {
			d, scale, ok := ByName(fd.Name)
			testkit.ErrorIf(t, !ok || d != fd.Desc || scale != fd.Scale || !utf8.ValidString(fd.Help), "field %+v", fd)
			testkit.ErrorIf(t, strings.ContainsFunc(fd.Help, func(c rune) bool { return c != '\n' && unicode.IsControl(c) }), "help %q", fd.Help)
		}
		again, problems, err := Parse(bytes.NewReader(Format(l)), ParseOptions{Strict: true})
		if len(l.Fields) > 0 && (err != nil || len(problems) > 0) {
			t.Fatalf("rendered list: %v %v\n%s", err, problems, Format(l))
		}
		diff := sameList(l, again)
		testkit.ErrorIf(t, diff != "", "rendered list parses to (-want +got):\n%s", diff)
		for _, wanted := range []Names{NamesAsWritten, NamesOld, NamesNew, NamesBoth} {
			checkNamed(t, l, wanted)
		}
	})
}

// checkNamed checks that every reading of l is shown, under its own names.
func checkNamed(t *testing.T, l List, wanted Names) {
	t.Helper()
	named, _ := l.Named(wanted, "f")
	names, shown := map[string]bool{}, map[ID]bool{}
	for _, f := range named.Fields {
		d, scale, ok := ByName(f.Name)
		testkit.ErrorIf(t, !ok || d != f.Desc || scale != f.Scale || f.Names != "" || names[f.Name], "%s: field %+v", wanted, f)
		names[f.Name], shown[f.Desc.ID] = true, true
	}
	for _, f := range l.Fields {
		testkit.ErrorIf(t, !shown[f.Desc.ID], "%s: %s is not shown", wanted, f.Name)
	}
}
