//go:build tools

// Package packages pins the program that makes the Debian and RPM packages. It is a separate module, to keep its
// dependencies out of the exporter's.
package packages

import _ "github.com/goreleaser/nfpm/v2/cmd/nfpm"
