// Command genmarkdown writes docs/fields.md from the catalogue.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"warpgauge/pkg/field"
)

func main() {
	out := flag.String("o", "fields.md", "file to write")
	flag.Parse()
	var b bytes.Buffer
	err := field.WriteMarkdown(&b)
	if err == nil {
		err = os.WriteFile(*out, b.Bytes(), 0o644) //nolint:gosec // a page is for all to read
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "genmarkdown:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}
