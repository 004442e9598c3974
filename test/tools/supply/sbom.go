package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes a CycloneDX 1.6 bill of materials for subject, a file that contains the programs, or for the first
// program if subject is empty.
func writeSBOM(out io.Writer, programs []program, subject, version string, at time.Time) error {
	of := fileComponent(programs[0].file, programs[0].sha256, version, cdx.ComponentTypeApplication)
	contents := programs[1:]
	if subject != "" {
		sum, err := fileSum(subject)
		if err != nil {
			return err
		}
		of, contents = fileComponent(filepath.Base(subject), sum, version, cdx.ComponentTypeFile), programs
	}
	of.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}

	components, dependencies := []cdx.Component{}, []cdx.Dependency{}
	inside := []string{}
	for _, p := range contents {
		c := fileComponent(p.file, p.sha256, version, cdx.ComponentTypeApplication)
		components, inside = append(components, c), append(inside, c.BOMRef)
	}
	for _, m := range union(programs) {
		components = append(components, m.component())
	}
	for _, p := range programs {
		refs := []string{}
		for _, m := range p.modules {
			refs = append(refs, m.packageURL())
		}
		ref := fileComponent(p.file, p.sha256, version, "").BOMRef
		if ref == of.BOMRef {
			refs = append(refs, inside...)
		}
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &refs})
	}
	if subject != "" {
		dependencies = append(dependencies, cdx.Dependency{Ref: of.BOMRef, Dependencies: &inside})
	}

	bom := cdx.NewBOM()
	bom.SerialNumber = serial((*of.Hashes)[0].Value)
	bom.Metadata = &cdx.Metadata{
		Component: &of,
		Tools:     &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "supply", Publisher: "warpgauge"}}},
	}
	if !at.IsZero() {
		bom.Metadata.Timestamp = at.Format(time.RFC3339)
	}
	bom.Components, bom.Dependencies = &components, &dependencies
	return cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// fileComponent describes a shipped file: a program or the file that contains it.
func fileComponent(name, sum, version string, kind cdx.ComponentType) cdx.Component {
	return cdx.Component{
		BOMRef: "file:" + name, Type: kind, Name: name, Version: version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
	}
}

func (m *module) component() cdx.Component {
	licenses := cdx.Licenses{}
	for _, id := range m.licenses() {
		licenses = append(licenses, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	if len(licenses) == 0 {
		licenses = append(licenses, cdx.LicenseChoice{License: &cdx.License{Name: m.texts[0].name}})
	}
	return cdx.Component{
		BOMRef: m.packageURL(), Type: cdx.ComponentTypeLibrary, Name: m.path, Version: m.version,
		PackageURL: m.packageURL(), Licenses: &licenses,
	}
}

// packageURL returns the module's package URL, in lower case as its specification requires for Go.
func (m *module) packageURL() string {
	return "pkg:golang/" + strings.ToLower(m.path) + "@" + strings.ReplaceAll(m.version, "+", "%2B")
}

// serial returns a version 8 UUID derived from a checksum: each file has its own SBOM.
func serial(sum string) string {
	b, _ := hex.DecodeString(sum)
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
