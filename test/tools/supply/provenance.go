package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
)

type object = map[string]any

// writeProvenance writes how the files in a sha256sum list were built: an in-toto statement
// (https://in-toto.io/Statement/v1) with the provenance of SLSA 1.0 (https://slsa.dev/spec/v1.0/provenance). It is not
// signed: the publisher signs it.
func writeProvenance(path, sums, version, commit, home, base string) error {
	list, err := os.ReadFile(sums)
	if err != nil {
		return err
	}
	var subject []object
	for line := range strings.Lines(string(list)) {
		digest, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if raw, err := hex.DecodeString(digest); !ok || err != nil || len(raw) != 32 || name == "" {
			return fmt.Errorf("%s: %q is not a line of sha256sum", sums, line)
		}
		subject = append(subject, object{"name": name, "digest": object{"sha256": digest}})
	}
	if subject == nil {
		return fmt.Errorf("%s has no file", sums)
	}
	dependencies := []object{{"uri": "git+" + home, "digest": object{"gitCommit": commit}}}
	if name, digest, ok := strings.Cut(base, "@sha256:"); ok {
		dependencies = append(dependencies, object{"uri": "docker://" + name, "digest": object{"sha256": digest}})
	}
	builder := home + "/deploy/release"
	if id := os.Getenv("BUILDER_ID"); id != "" {
		builder = id
	}
	out, err := json.MarshalIndent(object{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subject,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            home + "/deploy/release",
				"externalParameters":   object{"version": version},
				"internalParameters":   object{"go": runtime.Version()},
				"resolvedDependencies": dependencies,
			},
			"runDetails": object{"builder": object{"id": builder}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}
