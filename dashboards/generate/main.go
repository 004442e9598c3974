// Command generate writes the Grafana dashboards in the parent folder from code, so that one quantity has the same
// expression, unit and colours everywhere.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run .

func main() {
	if err := write(".."); err != nil {
		fmt.Fprintln(os.Stderr, "generate dashboards:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func write(dir string) error {
	for name, d := range map[string]*builder{
		"fleet": fleet(), "node": node(), "gpu": gpu(), "workloads": workloads(), "exporter": exporter(), "lists": lists(), "accounts": accounts(),
	} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(d.d); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), b.Bytes(), 0o644); err != nil { //nolint:gosec // public files
			return err
		}
	}
	return nil
}
