package server

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
)

// readWebConfig checks the file as exporter-toolkit will read it, certificates
// and password hashes included, and reports whether it switches TLS on.
func readWebConfig(file string) (tls bool, err error) {
	if file == "" {
		return false, nil
	}
	if err := web.Validate(file); err != nil {
		return false, fmt.Errorf("read web config file %q: %w", file, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("read web config file %q: %w", file, err)
	}
	var c web.Config
	if err := yaml.Unmarshal(text, &c); err != nil {
		return false, fmt.Errorf("read web config file %q: %w", file, err)
	}
	c.TLSConfig.SetDirectory(filepath.Dir(file))
	// The file is valid, so the only error left is that it has no TLS in it.
	_, err = web.ConfigToTLSConfig(&c.TLSConfig)
	return err == nil, nil
}
