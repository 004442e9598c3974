package owner

import (
	"encoding/json"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/file"
)

// aboutPrefix begins the name of a file with more facts about a job: .job-17, with lines such as user=anna. Readers of
// dcgm-exporter's job files skip names that begin with a dot.
const aboutPrefix = ".job-"

// maxAbout bounds such a file.
const maxAbout = 4 << 10

// about maps the labels of a job to their names in this project's files and in the JSON files that the prolog of ROCm's
// device-metrics-exporter writes, one per GPU (example/slurm of https://github.com/ROCm/device-metrics-exporter).
var about = []struct{ label, ours, slurm string }{
	{"cluster_name", "cluster", "SLURM_CLUSTER_NAME"},
	{jobPartition, "partition", "SLURM_JOB_PARTITION"},
	{jobUser, "user", "SLURM_JOB_USER"},
	{jobPrefix + "uid", "uid", "SLURM_JOB_UID"},
}

// Labels of jobs that Options.JobLabels can request, after their prefix.
const (
	jobPrefix    = "job_"
	jobPartition = jobPrefix + "partition"
	jobUser      = jobPrefix + "user"
)

// describe adds the labels of a file's jobs.
func describe(root *os.Root, f *content, of map[string][]collector.Label) {
	for _, id := range f.jobs {
		if _, done := of[id]; done {
			continue
		}
		labels := f.about
		if labels == nil {
			labels = readAbout(root, id)
		}
		if len(labels) > 0 {
			of[id] = labels
		}
	}
}

// parseJSONJob parses a JSON file: one object of strings, named like Slurm's variables. A truncated file is still being
// written.
func parseJSONJob(text []byte) content {
	var said map[string]string
	if json.Unmarshal(text, &said) != nil {
		return content{reason: ReasonBadContent, whole: true}
	}
	c, id := content{about: []collector.Label{}}, strings.TrimSpace(said["SLURM_JOB_ID"])
	if c.addLine(id); len(c.jobs) == 0 || id[0] == '{' {
		return content{reason: ReasonBadContent, whole: true}
	}
	for _, a := range about {
		if v := aboutText(said[a.slurm]); v != "" {
			c.about = append(c.about, collector.Label{Name: a.label, Value: v})
		}
	}
	return c
}

// readAbout reads the facts that this project's prolog has written about a job; nothing if there is no file.
func readAbout(root *os.Root, id string) (out []collector.Label) {
	if strings.ContainsRune(id, os.PathSeparator) {
		return nil
	}
	text, err := file.ReadIn(root, aboutPrefix+id, maxAbout)
	if err != nil {
		return nil // without the labels
	}
	said := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		said[name] = value
	}
	for _, a := range about {
		if v := aboutText(said[a.ours]); v != "" {
			out = append(out, collector.Label{Name: a.label, Value: v})
		}
	}
	return out
}

// aboutText returns s if it can be a label value, else "".
func aboutText(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxJobID || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return s
}
