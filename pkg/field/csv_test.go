package field

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit"
)

// row holds the parts of a Field that tests compare.
type row struct {
	Name, Type, Help string
	ID               ID
	Scale            float64
	Line             int
}

func rows(l List) []row {
	var out []row
	for _, f := range l.Fields {
		out = append(out, row{f.Name, f.Type.String(), f.Help, f.Desc.ID, f.Scale, f.Line})
	}
	return out
}

func texts(problems []Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Error())
	}
	return out
}

const (
	temp  = "DCGM_FI_DEV_GPU_TEMP"
	power = "DCGM_FI_DEV_POWER_USAGE"
)

// One entry for every rule of the format.
func TestParse(t *testing.T) {
	one := []row{{temp, "gauge", "h", 150, 1, 1}}
	at := func(line int) []row { return []row{{temp, "gauge", "h", 150, 1, line}} }
	strict := false
	f := func(name, in string, want []row, say ...string) {
		t.Helper()
		l, problems, err := Parse(strings.NewReader(in), ParseOptions{File: "f.csv", Strict: strict})
		testkit.Equal(t, fmt.Sprintf("%s: problems of %q", name, in), say, texts(problems))
		testkit.Equal(t, fmt.Sprintf("%s: fields of %q", name, in), want, rows(l))
		testkit.Equal(t, fmt.Sprintf("%s: error %v", name, err), slices.ContainsFunc(say, func(s string) bool { return strings.Contains(s, " error: ") }), err != nil)
	}
	f("a row", temp+",gauge,h\n", one)
	f("no line end", temp+",gauge,h", one)
	f("comment", "# c\n"+temp+",gauge,h\n#"+power+",gauge,h\n", at(2))
	f("comment after blanks", "  # c, d\n\t# e\n"+temp+",gauge,h\n", at(3))
	f("comment of a spreadsheet", "# Clocks,,\n"+temp+",gauge,h\n", at(2))
	f("quote in a comment", "# the \"name\n"+temp+",gauge,h\n", at(2))
	f("empty lines", "\n\n"+temp+",gauge,h\n\n \t \n", at(3))
	f("carriage returns", "# c\r\n"+temp+",gauge,h\r\n\r\n", at(2))
	f("byte order mark", "\ufeff"+temp+",gauge,h\n", one)
	f("mark before a comment", "\ufeff# c\n"+temp+",gauge,h\n", at(2))
	f("blanks around cells", "  "+temp+" ,  gauge ,  h  \n", one)
	f("tabs around cells", "\t"+temp+"\t,\tgauge\t,\th\t\n", one)
	f("empty help", temp+",gauge,\n", []row{{temp, "gauge", "", 150, 1, 1}})
	f("trailing empty cells", temp+",gauge,h,,,\n", one)
	f("quoted help with a comma", temp+`,gauge,"a, ""b"""`, []row{{temp, "gauge", `a, "b"`, 150, 1, 1}})
	f("blank before a quote", temp+`, gauge, "a, b"`, []row{{temp, "gauge", "a, b", 150, 1, 1}})
	f("blank after a quote", temp+`,gauge,"a, b"  `+"\t\r\n", []row{{temp, "gauge", "a, b", 150, 1, 1}})
	f("quoted help over two lines", temp+",gauge,\"a\r\nb\"\r\n"+power+",gauge,h", []row{{temp, "gauge", "a\nb", 150, 1, 1}, {power, "gauge", "h", 155, 1, 3}})
	f("control characters in help", temp+",gauge,a\x01\\n\x7fb\rc\u0085d\u2028e\n", []row{{temp, "gauge", "a \\n b c d e", 150, 1, 1}})
	f("counter", temp+",counter,h", []row{{temp, "counter", "h", 150, 1, 1}})
	f("untyped", temp+",untyped,h", []row{{temp, "untyped", "h", 150, 1, 1}})
	f("histogram", temp+",histogram,h", []row{{temp, "histogram", "h", 150, 1, 1}})
	f("label", "DCGM_FI_DRIVER_VERSION,label,h", []row{{"DCGM_FI_DRIVER_VERSION", "label", "h", 1, 1, 1}})
	f("a number as a label", "DCGM_FI_DEV_MINOR_NUMBER,label,h", []row{{"DCGM_FI_DEV_MINOR_NUMBER", "label", "h", 55, 1, 1}})
	f("a name of DCGM 1.x", "dcgm_gpu_temp,gauge,h", []row{{"dcgm_gpu_temp", "gauge", "h", 150, 1, 1}})
	f("a name of DCGM 3", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS,gauge,h", []row{{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", "h", 112, 1, 1}})
	f("both dialects", "DCGM_FI_DEV_SM_CLOCK,gauge,h\nDCGM_FI_DEV_SM_CLOCK_HERTZ,gauge,h", []row{{"DCGM_FI_DEV_SM_CLOCK", "gauge", "h", 100, 1, 1}, {"DCGM_FI_DEV_SM_CLOCK_HERTZ", "gauge", "h", 100, 1e6, 2}})
	f("exporter counters keep their type", "DCGM_EXP_XID_ERRORS_COUNT,counter,h\nDCGM_EXP_CLOCK_EVENTS_COUNT,gauge,h\nDCGM_EXP_GPU_HEALTH_STATUS,untyped,h",
		[]row{{"DCGM_EXP_XID_ERRORS_COUNT", "counter", "h", XIDErrorsCount, 1, 1}, {"DCGM_EXP_CLOCK_EVENTS_COUNT", "gauge", "h", ClockEventsCount, 1, 2}, {"DCGM_EXP_GPU_HEALTH_STATUS", "untyped", "h", GPUHealth, 1, 3}})
	f("summary", temp+",summary,h", one,
		`f.csv:1:22: warning: type summary is read as gauge; type histogram keeps what happens between scrapes`)
	f("unknown field", "DCGM_FI_DEV_GPU_TMP,gauge,h\n"+temp+",gauge,h\nX,gauge,h", at(2),
		`f.csv:1:1: warning: unknown field "DCGM_FI_DEV_GPU_TMP", did you mean "DCGM_FI_DEV_GPU_TEMP"?`,
		`f.csv:3:1: warning: unknown field "X"`)
	strict = true
	f("unknown field, strict", " DCGM_FI_DEV_GPU_TMP,gauge,h\n"+temp+",gauge,h", nil,
		`f.csv:1:2: error: unknown field "DCGM_FI_DEV_GPU_TMP", did you mean "DCGM_FI_DEV_GPU_TEMP"?`)
	strict = false
	f("case of the field", "dcgm_fi_dev_gpu_temp,gauge,h\n"+temp+",gauge,h", at(2),
		`f.csv:1:1: warning: unknown field "dcgm_fi_dev_gpu_temp", did you mean "DCGM_FI_DEV_GPU_TEMP"?`)
	f("unknown exporter counter", "DCGM_EXP_FOO,gauge,h\n"+temp+",gauge,h", at(2),
		`f.csv:1:1: warning: unknown field "DCGM_EXP_FOO"`)
	f("the pseudo reading", "XID_EVENT,gauge,h\n"+temp+",gauge,h", at(2),
		`f.csv:1:1: warning: unknown field "XID_EVENT"`)
	f("row of commas", ",,\n"+temp+",gauge,h", at(2),
		`f.csv:1:1: warning: the row names no field`)
	f("field that never has a value", "DCGM_FI_UNKNOWN,gauge,h\n"+temp+",gauge,h", at(2),
		`f.csv:1:1: warning: skipping the row: field "DCGM_FI_UNKNOWN" never has a value`)
	f("text as a gauge", "DCGM_FI_DRIVER_VERSION, gauge,h\n"+temp+",gauge,h", at(2),
		`f.csv:1:25: warning: skipping the row: field "DCGM_FI_DRIVER_VERSION" is a text; use type label`)
	f("text as a histogram", "DCGM_FI_DRIVER_VERSION,histogram,h\n"+temp+",gauge,h", at(2),
		`f.csv:1:24: warning: skipping the row: field "DCGM_FI_DRIVER_VERSION" is a text; use type label`)
	f("binary", "DCGM_FI_DEV_ENC_STATS,label,h\n"+temp+",gauge,h", at(2),
		`f.csv:1:1: warning: skipping the row: field "DCGM_FI_DEV_ENC_STATS" is a binary value, which no page can show`)
	f("moving number as a label", "DCGM_FI_DEV_SM_CLOCK,label,h", []row{{"DCGM_FI_DEV_SM_CLOCK", "label", "h", 100, 1, 1}},
		`f.csv:1:22: warning: field "DCGM_FI_DEV_SM_CLOCK" changes all the time; as a label it makes new series, up to once a minute`)
	f("exporter counter as a label", "DCGM_EXP_P2P_STATUS,label,h\n"+temp+",gauge,h", at(2),
		`f.csv:1:21: warning: skipping the row: field "DCGM_EXP_P2P_STATUS" is counted by the exporter and cannot be a label`)
	f("exporter counter as a histogram", "DCGM_EXP_XID_ERRORS_TOTAL,histogram,h", []row{{"DCGM_EXP_XID_ERRORS_TOTAL", "gauge", "h", XIDErrorsTotal, 1, 1}},
		`f.csv:1:27: warning: field "DCGM_EXP_XID_ERRORS_TOTAL" can not be a histogram, it is read as gauge`)
	f("duplicate", temp+",gauge,h\n"+power+",gauge,h\n"+temp+",counter,other", append(one, row{power, "gauge", "h", 155, 1, 2}),
		`f.csv:3:1: warning: skipping the row: field "DCGM_FI_DEV_GPU_TEMP" is in line 1 already`)
	f("duplicate of a bad row is none", "DCGM_FI_DRIVER_VERSION,gauge,h\nDCGM_FI_DRIVER_VERSION,label,h", []row{{"DCGM_FI_DRIVER_VERSION", "label", "h", 1, 1, 2}},
		`f.csv:1:24: warning: skipping the row: field "DCGM_FI_DRIVER_VERSION" is a text; use type label`)
	f("help that is not UTF-8", temp+",gauge,20 \xb0C", []row{{temp, "gauge", "20 \uFFFDC", 150, 1, 1}},
		`f.csv:1:28: warning: the help text is not UTF-8; the bad bytes are replaced`)
	f("nothing", "", nil,
		"f.csv: warning: the file has no rows, so nothing will be measured")
	f("only comments", "# a\n\n", nil,
		"f.csv: warning: the file has no rows, so nothing will be measured")
	f("nothing of use", "X,gauge,h\n", nil,
		`f.csv:1:1: warning: unknown field "X"`,
		`f.csv: error: none of the file's rows can be used (1 in all)`)
	f("case of the type", temp+", Gauge,h", nil,
		`f.csv:1:23: error: unknown type "Gauge", did you mean "gauge"?`)
	f("misspelt type", temp+",gaige,h", nil,
		`f.csv:1:22: error: unknown type "gaige", did you mean "gauge"?`)
	f("unknown type", temp+",temperature,h", nil,
		`f.csv:1:22: error: unknown type "temperature"; types are gauge, counter, histogram, untyped and label`)
	f("no type", temp+",,h", nil,
		`f.csv:1:22: error: the row has no type; types are gauge, counter, histogram, untyped and label`)
	f("type of an exporter counter", "DCGM_EXP_P2P_STATUS,status,h", nil,
		`f.csv:1:21: error: unknown type "status"; types are gauge, counter, histogram, untyped and label`)
	f("two cells", temp+",gauge\n"+power+"\n", nil,
		"f.csv:1: error: 2 cells instead of field, type, help",
		"f.csv:2: error: 1 cell instead of field, type, help")
	f("tabs", temp+"\tgauge\th", nil,
		"f.csv:1: error: 1 cell instead of field, type, help: write commas between them, not tabs")
	f("semicolons", temp+";gauge;h, i", nil,
		"f.csv:1: error: 2 cells instead of field, type, help: write commas between them, not semicolons")
	f("no text", "\x7fELF\x02\x00\x00,a,b\n"+temp+",gauge,h", nil,
		"f.csv: error: this is not a text file: it has bytes that are 0")
	f("help with commas", temp+",gauge,a,b,c", nil,
		"f.csv:1:32: error: 5 cells instead of field, type, help and options; a help text with a comma must be in double quotes")
	f("help with a comma", temp+",gauge,a, b", nil,
		`f.csv:1:31: error: unknown option "b"; quote the help text if it contains a comma`)
	f("quote within a cell", temp+`,gauge,a "b"`+"\n"+temp+",Gauge,h", nil,
		"f.csv:1:30: error: a double quote within a cell; put the whole cell in double quotes and double those within",
		`f.csv:2:22: error: unknown type "Gauge", did you mean "gauge"?`)
	f("text after a quote", temp+`,gauge,"a"b`, nil,
		"f.csv:1:30: error: a quoted cell that does not end before the next comma; double the double quotes within")
	f("two broken quotes", temp+`,gauge,x"y,"`+"\n"+temp+`,gauge,"a`+"\n"+`b"c`+"\n"+power+",Gauge,h", nil,
		"f.csv:1:29: error: a double quote within a cell; put the whole cell in double quotes and double those within",
		"f.csv:2:30: error: a quoted cell that does not end before the next comma; double the double quotes within",
		"f.csv:3:2: error: a double quote within a cell; put the whole cell in double quotes and double those within",
		`f.csv:4:25: error: unknown type "Gauge", did you mean "gauge"?`)
	f("open quote hides nothing", temp+`,gauge,"a`+"\n"+power+",gauge,h\nX,gauge,h\n", nil,
		"f.csv:1:30: error: a quoted cell that does not end before the next comma; double the double quotes within",
		`f.csv:3:1: warning: unknown field "X"`)
	f("UTF-16", "\xff\xfeD\x00", nil,
		"f.csv:1:1: error: the file is in UTF-16, save it as UTF-8")
}

func TestOptions(t *testing.T) {
	f := func(options string, interval time.Duration, buckets []float64, say ...string) {
		t.Helper()
		in := temp + ",histogram,h," + options
		l, problems, err := Parse(strings.NewReader(in), ParseOptions{})
		testkit.Equal(t, fmt.Sprintf("problems of %q", in), say, texts(problems))
		if len(say) > 0 {
			testkit.Equal(t, fmt.Sprintf("%q: there is an error", in), true, err != nil)
			return
		}
		got := l.Fields[0]
		testkit.Equal(t, fmt.Sprintf("interval of %q", in), interval, got.Interval)
		diff := cmp.Diff(buckets, got.Buckets)
		testkit.ErrorIf(t, buckets != nil && diff != "", "%q: buckets (-want +got):\n%s", in, diff)
	}
	f("interval=100ms", 100*time.Millisecond, nil)
	f("interval=10ms", 10*time.Millisecond, nil)
	f("interval=1h", time.Hour, nil)
	f(" interval=1.5s ", 1500*time.Millisecond, nil)
	f("buckets=1|5|10", 0, []float64{1, 5, 10})
	f("buckets=-20|0|1e2", 0, []float64{-20, 0, 100})
	f("interval=1s buckets=3", time.Second, []float64{3})
	f("interval=1s; buckets=3", time.Second, []float64{3})
	f(";;interval=1s;", time.Second, nil)

	f("interval=100", 0, nil, `1:34: error: bad interval "100"; write it as 100ms, 5s or 1m`)
	f("interval=", 0, nil, `1:34: error: bad interval ""; write it as 100ms, 5s or 1m`)
	f("interval=1ms", 0, nil, `1:34: error: interval "1ms" is not between 10ms and 1h0m0s`)
	f("interval=-1s", 0, nil, `1:34: error: interval "-1s" is not between 10ms and 1h0m0s`)
	f("interval=2h", 0, nil, `1:34: error: interval "2h" is not between 10ms and 1h0m0s`)
	f("interval=1s interval=2s", 0, nil, `1:34: error: option "interval" is there twice`)
	f("intervall=1s", 0, nil, `1:34: error: unknown option "intervall", did you mean "interval"?`)
	f("Interval=1s", 0, nil, `1:34: error: unknown option "Interval", did you mean "interval"?`)
	f("color=red", 0, nil, `1:34: error: unknown option "color"; options are interval=DURATION, buckets=A|B|C and names=MODE`)
	f("fast", 0, nil, `1:34: error: unknown option "fast"; quote the help text if it contains a comma`)
	f("buckets=5|1", 0, nil, `1:34: error: buckets "5|1" do not ascend`)
	f("buckets=1|1", 0, nil, `1:34: error: buckets "1|1" do not ascend`)
	f("buckets=1|+Inf", 0, nil, `1:34: error: bad bucket "+Inf" in "1|+Inf"; write buckets=1|5|10, without +Inf`)
	f("buckets=NaN", 0, nil, `1:34: error: bad bucket "NaN" in "NaN"; write buckets=1|5|10, without +Inf`)
	f("buckets=1|x", 0, nil, `1:34: error: bad bucket "x" in "1|x"; write buckets=1|5|10, without +Inf`)
	f("buckets="+strings.Repeat("1|", 100)+"1", 0, nil, `1:34: error: 101 buckets are more than 100`)
	f("interval=x buckets=y", 0, nil,
		`1:34: error: bad interval "x"; write it as 100ms, 5s or 1m`,
		`1:34: error: bad bucket "y" in "y"; write buckets=1|5|10, without +Inf`)

	_, problems, err := Parse(strings.NewReader(temp+",gauge,h,buckets=1|2\nDCGM_FI_DRIVER_VERSION,label,h,interval=1s"), ParseOptions{})
	want := []string{
		"1:30: error: option buckets is only for type histogram",
		"2:32: error: option interval has no meaning for type label",
	}
	testkit.Equal(t, "there is an error", true, err != nil)
	testkit.Equal(t, "problems", want, texts(problems))
}

// The parser reports all bad lines at once, in the order of the file, and counts the errors.
func TestAllAtOnce(t *testing.T) {
	in := "# c\n" + temp + ",gague,h\nNOPE,gauge,h\n" + power + ",gauge\n" + temp + ",gauge,h,interval=soon\n"
	l, problems, err := Parse(strings.NewReader(in), ParseOptions{File: "f.csv"})
	want := []string{
		`f.csv:2:22: error: unknown type "gague", did you mean "gauge"?`,
		`f.csv:3:1: warning: unknown field "NOPE"`,
		`f.csv:4: error: 2 cells instead of field, type, help`,
		`f.csv:5:30: error: bad interval "soon"; write it as 100ms, 5s or 1m`,
	}
	testkit.Equal(t, "problems", want, texts(problems))
	testkit.Equal(t, "fields", []Field(nil), l.Fields)
	wantErr := `parse counters: 3 errors, the first: f.csv:2:22: error: unknown type "gague", did you mean "gauge"?`
	testkit.Equal(t, "error", wantErr, fmt.Sprint(err))
	var p Problem
	testkit.ErrorIf(t, !errors.As(err, &p) || p.Line != 2 || p.Column != 22 || p.Severity != Error || p.File != "f.csv", "the error holds %+v", p)
}

func TestLimits(t *testing.T) {
	f := func(what, in string, want ...string) {
		t.Helper()
		_, problems, err := Parse(strings.NewReader(in), ParseOptions{})
		testkit.Equal(t, fmt.Sprintf("%s: problems", what), want, texts(problems))
		testkit.Equal(t, what+": there is an error", true, err != nil)
	}
	f("file", strings.Repeat("# comment\n", MaxFileBytes/10+1), "error: the file is larger than 4194304 bytes")
	f("line", temp+",gauge,"+strings.Repeat("x", maxRecordBytes)+"\n"+power+",gage,h", "1: error: the line is longer than 65536 bytes",
		`2:25: error: unknown type "gage", did you mean "gauge"?`)
	f("open quote", temp+",gauge,\"\n"+strings.Repeat("# comment\n", maxRecordBytes/10+1),
		"1:29: error: a quoted cell that does not end before the next comma; double the double quotes within")

	long := strings.Repeat("x", 200)
	f("names", long+","+long+",h,"+long, `1:1: warning: unknown field "`+long[:100]+`…"`,
		`1:202: error: unknown type "`+long[:100]+`…"; types are gauge, counter, histogram, untyped and label`,
		`1:405: error: unknown option "`+long[:100]+`…"; quote the help text if it contains a comma`)

	_, problems, err := Parse(strings.NewReader(temp+",gauge,"+strings.Repeat("x", maxRecordBytes-100)), ParseOptions{})
	testkit.ErrorIf(t, err != nil, "a long line: %v %v", problems, err)
}

// A file that is not a CSV causes a limited number of messages.
func TestManyProblems(t *testing.T) {
	_, problems, err := Parse(strings.NewReader(strings.Repeat("junk\n", 5000)), ParseOptions{})
	testkit.Has(t, "error", fmt.Sprint(err), "5000 errors")
	n := len(problems)
	testkit.FatalIf(t, n != maxProblems+1, "%d problems", n)
	testkit.Equal(t, "last problem", "warning: 4000 more problems are not listed", problems[maxProblems].Error())
	// Errors after many warnings still make the file unusable and are reported.
	_, problems, err = Parse(strings.NewReader(strings.Repeat("X,gauge,h\n", 2000)+temp+",Gauge,h\n"), ParseOptions{})
	if n := len(problems); n != maxProblems+2 || problems[n-2].Severity != Error || problems[n-2].Line != 2001 {
		t.Errorf("%d problems, the last are %v", n, problems[max(0, n-2):])
	}
	testkit.Equal(t, "there is an error after many warnings", true, err != nil)
}

// An open quote must not make the reader start over again and again.
func TestManyBrokenQuotes(t *testing.T) {
	for _, line := range []string{"x\"y,\"\n", ",\"\n", ",\"\"\"\"\"\n", "a,\"b\n\"\"\n", ",\"\nx\n\n", "\""} {
		_, problems, err := Parse(strings.NewReader(strings.Repeat(line, 10*maxRecordBytes/len(line))), ParseOptions{})
		n := strings.Count(strings.Join(texts(problems), "\n"), "quote")
		testkit.ErrorIf(t, n > 2*maxBroken+1 || err == nil, "%q: %d broken quotes, error %v", line, n, err) // each message has the word twice
	}
}
