package owner

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"warpgauge/internal/testkit"
)

func TestParse(t *testing.T) {
	f := func(text string, open bool, jobs ...string) {
		t.Helper()
		c := parseJobs([]byte(text))
		testkit.ErrorIf(t, !slices.Equal(c.jobs, jobs) || c.open != open || c.reason != "", "parseJobs(%q) = %+v, want jobs %q, open %v", text, c, jobs, open)
	}
	f("", true)
	f("\n", false)
	f("\n\n\r\n \n", false)
	f("17", true, "17")
	f("17\n18", true, "17", "18")
	f("17\n\n18\n", false, "17", "18")
	f("17\n17", true, "17")
	f("# no comment\n \t17 \r\n17\n", false, "# no comment", "17") // same as dcgm-exporter
	f("123_4\n123.batch\nléa-7\n", false, "123_4", "123.batch", "léa-7")
	f(strings.Repeat("x", maxJobID)+"\n", false, strings.Repeat("x", maxJobID))
}

func TestNames(t *testing.T) {
	const device, bad, other = 0, 1, 2
	for name, want := range map[string]int{
		"0": device, "10": device, "3.0": device, "12.13": device, "65535.65535": device,
		"00": bad, "01.2": bad, "1.02": bad, "123456": bad, "1.123456": bad, "123456789012345678901234567890": bad,
		"": other, ".": other, "0.": other, ".0": other, "0.0.0": other, "0~": other, ".0.tmp": other, "a": other, "-1": other, "0x1": other, "٣": other, "0\n": other,
	} {
		got := other
		switch {
		case jobFileName.MatchString(name):
			got = device
		case likeJobFile.MatchString(name):
			got = bad
		}
		testkit.Equal(t, name, want, got)
	}
	names := []string{"10", "2", "2.10", "2.9", "0", "1.0"}
	slices.SortFunc(names, compareNames)
	testkit.Equal(t, "order", []string{"0", "1.0", "2", "2.9", "2.10", "10"}, names)
}

// FuzzParse: job IDs are valid label values, and a truncated file of whole lines has no job that the whole file lacks.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"SLURM_JOB_ID":"17","SLURM_JOB_USER":"a"}`, "", "17\n", "17\n18", "17\r\n\r\n18\r\n", "a b\n", "\x00\n", "\xff\n", "x\n\x1b[0m\n", "  \n\t17\t\n", strings.Repeat("y", 300), strings.Repeat("1\n2\n3", 100)} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		c := parseJobs(text)
		all := c.jobs
		testkit.FatalIf(t, len(all) > maxJobs, "%d jobs", len(all))
		for i, job := range all {
			if job == "" || len(job) > maxJobID || !utf8.ValidString(job) || strings.ContainsAny(job, "\n\r\x00") || strings.TrimSpace(job) != job {
				t.Fatalf("job id %q of %q", job, text)
			}
			testkit.FatalIf(t, slices.Contains(all[:i], job), "job %q twice in %q", job, all)
		}
		testkit.FatalIf(t, c.whole && len(all) > 0, "a file that is left out has jobs %q", all)
		again := parseJobs([]byte(strings.Join(all, "\n") + "\n"))
		testkit.FatalIf(t, len(all) > 0 && (!slices.Equal(again.jobs, all) || again.open || again.reason != ""), "%q are read back as %+v", all, again)
		if cut < 0 || cut > len(text) || c.whole || c.about != nil { // a truncated JSON file has no job
			return
		}
		part := parseJobs(text[:cut])
		if part.open != (cut == 0 || text[cut-1] != '\n') && !part.whole {
			t.Fatalf("open is %v after %q", part.open, text[:cut])
		}
		if !part.whole && !part.open && !slices.Equal(part.jobs, c.jobs[:min(len(part.jobs), len(c.jobs))]) {
			t.Fatalf("%q says %q, cut short at %d %q", text, c.jobs, cut, part.jobs)
		}
	})
}
