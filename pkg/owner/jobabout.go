package owner

import (
	"encoding/json"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"warpgauge/pkg/file"
)

// aboutPrefix begins the name of a file that says more of a job: .job-17, with lines such as
// user=anna. Readers of dcgm-exporter's job files take none that begins with a dot.
const aboutPrefix = ".job-"

// maxAbout bounds such a file.
const maxAbout = 4 << 10

// amdKeys are the keys of a file that the prolog of AMD's exporter writes, one per GPU
// (example/slurm of https://github.com/ROCm/device-metrics-exporter).
var amdKeys = map[string]string{JobUser: "SLURM_JOB_USER", JobPartition: "SLURM_JOB_PARTITION"}

// parseAMDJob reads a file of AMD's prolog: one JSON object with texts. One that ends too early
// is being written.
func parseAMDJob(text []byte) content {
	var said map[string]string
	if json.Unmarshal(text, &said) != nil {
		return content{reason: ReasonBadContent, whole: true}
	}
	c, id := content{}, strings.TrimSpace(said["SLURM_JOB_ID"])
	if c.add(id); len(c.jobs) == 0 || id[0] == '{' {
		return content{reason: ReasonBadContent, whole: true}
	}
	c.about = map[string]string{}
	for name, key := range amdKeys {
		c.about[name] = aboutText(said[key])
	}
	return c
}

// readAbout reads what the prolog of this project says of a job; nothing if there is no file.
func readAbout(root *os.Root, id string) map[string]string {
	if strings.ContainsRune(id, os.PathSeparator) {
		return nil
	}
	text, err := file.ReadIn(root, aboutPrefix+id, maxAbout)
	if err != nil {
		return nil // without the labels
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		out[name] = aboutText(value)
	}
	return out
}

// aboutText is a text that can be the value of a label; "" if it cannot.
func aboutText(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxJobID || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return s
}
