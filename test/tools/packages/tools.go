//go:build tools

// Package packages pins the program that makes the Debian and RPM packages. It has a
// module of its own, so that the exporter's has none of its dependencies.
package packages

import _ "github.com/goreleaser/nfpm/v2/cmd/nfpm"
