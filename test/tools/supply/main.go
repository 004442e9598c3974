// Command supply writes what the law and users want to know about a built program: the licences of everything that is linked
// into it, and a bill of materials (SBOM) as CycloneDX JSON. Both come from the list of modules that Go's linker leaves in
// the program and from the sources of these modules, so they cannot differ from the shipped program.
//
//	supply -version v1.4.0 -licenses THIRD_PARTY_LICENSES -sbom warpgauge.cdx.json bin/warpgauge
//	supply -version v1.4.0 -sbom warpgauge_1.4.0_amd64.deb.cdx.json -subject warpgauge_1.4.0_amd64.deb bin/warpgauge
//	supply -version v1.4.0 -commit HASH -provenance provenance.intoto.json SHA256SUMS
//
// It is run in the source tree that the programs were built from. The same input gives the
// same output; the SBOM has the time of SOURCE_DATE_EPOCH, or none.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		fmt.Fprintln(os.Stderr, "supply:", err)
		os.Exit(1)
	}
}

func run(args []string, epoch string) error {
	flags := flag.NewFlagSet("supply", flag.ContinueOnError)
	licenses := flags.String("licenses", "", "write the licences to this `file`")
	bill := flags.String("sbom", "", "write the SBOM to this `file`")
	subject := flags.String("subject", "", "the SBOM is about this `file`, which contains the programs; without it about the first program")
	from := flags.String("provenance", "", "write to this `file` what the files of a list of checksums were built from")
	commit := flags.String("commit", "", "`hash` of the commit, for -provenance")
	base := flags.String("base", "", "the image's `base` as NAME@sha256:DIGEST, for -provenance")
	home := flags.String("home", "https://warpgauge.invalid", "`address` of the source, for -provenance")
	version := flags.String("version", "unknown", "version of the programs")
	source := flags.String("source", ".", "`folder` of the module that the programs were built from")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *from != "" {
		if flags.NArg() != 1 || *commit == "" {
			return errors.New("-provenance requires -commit and one list of checksums")
		}
		return writeProvenance(*from, flags.Arg(0), *version, *commit, *home, *base)
	}
	if flags.NArg() == 0 {
		return errors.New("no program was named")
	}
	var programs []program
	for _, file := range flags.Args() {
		p, err := readProgram(file, *source)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		programs = append(programs, p)
	}
	if *licenses != "" {
		if err := os.WriteFile(*licenses, licenseText(programs), 0o644); err != nil {
			return err
		}
	}
	if *bill == "" {
		return nil
	}
	var at time.Time
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		at = time.Unix(seconds, 0).UTC()
	}
	var out bytes.Buffer
	if err := writeSBOM(&out, programs, *subject, *version, at); err != nil {
		return err
	}
	return os.WriteFile(*bill, out.Bytes(), 0o644)
}
