package doctor

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

const maxFile = 8 << 20 // maximum bytes of a file in a bundle

const bundleReadme = `What warpctl doctor has found, for those who help.

report.txt, report.json   findings, and what to do
facts.json                kernel, drivers, libraries, device nodes and their permissions
settings.txt              flags that are set
exporter/*.json           what the exporter says: devices with their states, fields with values or
                          reasons for their absence, health, field list, events
exporter/own-metrics.txt  its metrics on itself
log.txt                   the end of its log
`

const redactedReadme = `
Names of pods, namespaces, containers, jobs, processes, users, hosts and domains, addresses and
ids of pods are replaced, each by the same word everywhere (pod-1). Secrets are replaced by
[redacted]. UUIDs, serial numbers and PCI addresses of devices are as they are. Names that have
no place of their own in any source cannot be known: look through the files before you send them.
`

// Bundle writes a support bundle as a gzip-compressed tar file. redacted replaces names with pseudonyms.
func (r *Result) Bundle(w io.Writer, redacted bool) error {
	redact := r.redactor.text
	if !redacted {
		redact = func(s string) string { return s }
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	add := func(name, content string) error {
		content = redact(content)
		if len(content) > maxFile {
			content = content[:maxFile] + "\n[cut off]\n"
		}
		h := &tar.Header{Name: "warpgauge-doctor/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: r.facts.Time}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.WriteString(t, content)
		return err
	}
	files, err := r.files(redacted)
	if err != nil {
		return err
	}
	for _, f := range files { // a name in one file can appear in another, so learn from all files first
		redact(f[1])
	}
	for _, f := range files {
		if err := add(f[0], f[1]); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// files returns the names and contents of a bundle's files.
func (r *Result) files(redacted bool) ([][2]string, error) {
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		return nil, err
	}
	readme := bundleReadme
	if redacted {
		readme += redactedReadme
	}
	e := &r.facts.exporter
	log := r.facts.log
	if err := r.facts.logError; err != nil {
		log = "not read: " + err.Error() + "\n"
	}
	out := [][2]string{
		{"README.txt", readme}, {"report.txt", table.String()}, {"settings.txt", strings.Join(r.facts.flags, "\n") + "\n"},
		{"exporter/own-metrics.txt", e.own}, {"log.txt", tail(log, maxFile/2)},
	}
	for _, f := range []struct {
		name  string
		value any
		there bool
	}{
		{"report.json", r, true}, {"facts.json", &r.facts, true},
		{"exporter/devices.json", e.devices, e.devices != nil}, {"exporter/fields.json", e.fields, e.fields != nil},
		{"exporter/health.json", e.health, e.health != nil}, {"exporter/list.json", e.list, e.list != nil}, {"exporter/events.json", e.events, e.events != nil},
	} {
		if !f.there {
			continue
		}
		var b strings.Builder
		j := json.NewEncoder(&b)
		j.SetEscapeHTML(false)
		j.SetIndent("", " ")
		if err := j.Encode(f.value); err != nil {
			return nil, fmt.Errorf("encode %s: %w", f.name, err)
		}
		out = append(out, [2]string{f.name, b.String()})
	}
	return out, nil
}

// tail returns the last complete lines of a text.
func tail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	_, s, _ = strings.Cut(s[len(s)-most:], "\n")
	return s
}
