package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// built returns the path of this test program, which links a few modules.
func built(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "supply")
	if out, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return file
}

// validator returns a check against CycloneDX's own schema, from the sources of its Go library.
func validator(t *testing.T) func(file string) error {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	must(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for address, file := range map[string]string{
		"http://cyclonedx.org/schema/bom-1.6.schema.json":  "bom-1.6.schema.json",
		"http://cyclonedx.org/schema/spdx.schema.json":     "spdx.schema.json",
		"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		var document any
		decode(t, filepath.Join(strings.TrimSpace(string(dir)), "schema", file), &document)
		must(t, c.AddResource(address, document))
	}
	s, err := c.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	must(t, err)
	return func(file string) error {
		var document any
		decode(t, file, &document)
		return s.Validate(document)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func decode(t *testing.T, file string, to any) {
	t.Helper()
	must(t, json.Unmarshal(read(t, file), to))
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	must(t, err)
	return b
}

// TestFiles validates the SBOMs that the test of the packages names.
func TestFiles(t *testing.T) {
	files := strings.Fields(os.Getenv("WARPGAUGE_SBOMS"))
	if len(files) == 0 {
		t.Skip("no file is named in WARPGAUGE_SBOMS")
	}
	validate := validator(t)
	for _, f := range files {
		if err := validate(f); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func TestSupply(t *testing.T) {
	program, dir := built(t), t.TempDir()
	licenses, bill, packed, again := filepath.Join(dir, "licenses"), filepath.Join(dir, "bill"), filepath.Join(dir, "packed"), filepath.Join(dir, "again")
	subject := filepath.Join(dir, "supply.tar.gz")
	must(t, os.WriteFile(subject, []byte("packed"), 0o600))
	for _, args := range [][]string{
		{"-version=v1.2.3", "-licenses", licenses, "-sbom", bill, program},
		{"-version=v1.2.3", "-sbom", again, program},
		{"-version=v1.2.3", "-sbom", packed, "-subject", subject, program},
	} {
		if err := run(args, "1700000000"); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	if !bytes.Equal(read(t, bill), read(t, again)) {
		t.Error("the second SBOM of the same program differs from the first")
	}
	// The schema must reject a wrong file.
	wrong := filepath.Join(dir, "wrong")
	must(t, os.WriteFile(wrong, bytes.Replace(read(t, bill), []byte(`"library"`), []byte(`"librarian"`), 1), 0o600))
	validate := validator(t)
	for file, valid := range map[string]bool{bill: true, packed: true, wrong: false} {
		if err := validate(file); (err == nil) != valid {
			t.Errorf("%s: %v", file, err)
		}
	}

	modules := []string{"github.com/CycloneDX/cyclonedx-go", "github.com/google/licensecheck", "std"}
	for file, want := range map[string]struct {
		name       string
		components []string
	}{
		bill:   {"supply", modules},
		packed: {"supply.tar.gz", append([]string{"supply"}, modules...)},
	} {
		var got struct {
			Metadata struct {
				Timestamp string
				Component struct{ Name, Version string }
			}
			Components []struct {
				Name, Version, Purl string
				Licenses            []struct{ License struct{ ID string } }
			}
			Dependencies []struct {
				Ref       string
				DependsOn []string
			}
		}
		decode(t, file, &got)
		if m := got.Metadata; m.Component.Name != want.name || m.Component.Version != "v1.2.3" || m.Timestamp != "2023-11-14T22:13:20Z" {
			t.Errorf("the SBOM is about %+v, want %s", m, want.name)
		}
		var names []string
		for _, c := range got.Components {
			names = append(names, c.Name)
			if c.Name != "supply" && (len(c.Licenses) == 0 || c.Licenses[0].License.ID == "" || c.Version == "" || c.Purl == "") {
				t.Errorf("component %+v, want a licence, a version and a package URL", c)
			}
		}
		if !slices.Equal(names, want.components) {
			t.Errorf("components %q, want %q", names, want.components)
		}
		var needs []string
		for _, d := range got.Dependencies {
			if d.Ref == "file:supply" {
				needs = d.DependsOn
			}
		}
		if !slices.Contains(needs, "pkg:golang/github.com/cyclonedx/cyclonedx-go@v0.12.0") {
			t.Errorf("the program depends on %q, want cyclonedx-go among them", needs)
		}
	}
	text := string(read(t, licenses))
	for _, want := range []string{
		"github.com/CycloneDX/cyclonedx-go v0.12.0: Apache-2.0 [", "github.com/google/licensecheck v0.3.1: BSD-3-Clause [", "\nstd 1.",
		"Apache License", "Redistributions in binary form", "OWASP Foundation", "github.com/CycloneDX/cyclonedx-go NOTICE",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the licences do not have %q", want)
		}
	}
	if strings.Contains(text, "jsonschema") {
		t.Error("the licences have a module that is not linked")
	}
}

// The program must be built from these sources: other versions may have other licences.
func TestOtherSources(t *testing.T) {
	program, dir := built(t), t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(".")))
	main := filepath.Join(dir, "sbom.go")
	source := bytes.Replace(read(t, main), []byte("	cdx \"github.com/CycloneDX/cyclonedx-go\"\n"), nil, 1)
	must(t, os.WriteFile(main, source, 0o600))
	err := run([]string{"-source", dir, "-licenses", filepath.Join(dir, "out"), program}, "")
	if err == nil || !strings.Contains(err.Error(), "cyclonedx-go, which the sources do not require") {
		t.Errorf("error %v, want one that names cyclonedx-go", err)
	}
	if err := run([]string{os.Args[0] + ".missing"}, ""); err == nil {
		t.Error("a program that is missing is no error")
	}
	if err := run(nil, ""); err == nil {
		t.Error("no program is no error")
	}
}

func TestProvenance(t *testing.T) {
	dir := t.TempDir()
	sums, out := filepath.Join(dir, "SHA256SUMS"), filepath.Join(dir, "provenance.intoto.json")
	f := func(list string) error {
		must(t, os.WriteFile(sums, []byte(list), 0o644))
		return run([]string{"-version", "v1.4.0", "-commit", "abc", "-provenance", out, sums}, "")
	}
	digest := strings.Repeat("0a", 32)
	must(t, f(digest+"  a.deb\n"+digest+"  b c.rpm\n"))
	var got struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	decode(t, out, &got)
	if len(got.Subject) != 2 || got.Subject[1].Name != "b c.rpm" || got.Subject[1].Digest["sha256"] != digest ||
		got.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != "abc" {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"", "x  a.deb\n", digest + " a.deb\n", digest[2:] + "  a.deb\n", digest + "  \n"} {
		if err := f(bad); err == nil {
			t.Errorf("%q is taken for a list of checksums", bad)
		}
	}
}
