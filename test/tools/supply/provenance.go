package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// statement is an in-toto statement (https://in-toto.io/Statement/v1) with the provenance of
// SLSA 1.0 (https://slsa.dev/spec/v1.0/provenance). It is not signed: who publishes it signs it.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []subject  `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type provenance struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []dependency      `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

type dependency struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

// writeProvenance says what the files of a list, as sha256sum writes it, were built from.
func writeProvenance(path, sums, version, commit, home, base string) error {
	list, err := os.ReadFile(sums)
	if err != nil {
		return err
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	lines := bufio.NewScanner(bytes.NewReader(list))
	for lines.Scan() {
		digest, name, ok := strings.Cut(lines.Text(), "  ")
		if raw, err := hex.DecodeString(digest); !ok || err != nil || len(raw) != 32 || name == "" {
			return fmt.Errorf("%s: %q is no line of sha256sum", sums, lines.Text())
		}
		s.Subject = append(s.Subject, subject{name, map[string]string{"sha256": digest}})
	}
	if len(s.Subject) == 0 {
		return fmt.Errorf("%s has no file", sums)
	}
	d := &s.Predicate.BuildDefinition
	d.BuildType = home + "/deploy/release"
	d.ExternalParameters = map[string]string{"version": version}
	d.InternalParameters = map[string]string{"go": runtime.Version()}
	d.ResolvedDependencies = []dependency{{"git+" + home, map[string]string{"gitCommit": commit}}}
	if name, digest, ok := strings.Cut(base, "@sha256:"); ok {
		d.ResolvedDependencies = append(d.ResolvedDependencies, dependency{"docker://" + name, map[string]string{"sha256": digest}})
	}
	s.Predicate.RunDetails.Builder.ID = home + "/deploy/release"
	if id := os.Getenv("BUILDER_ID"); id != "" {
		s.Predicate.RunDetails.Builder.ID = id
	}
	out, err := json.MarshalIndent(&s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}
