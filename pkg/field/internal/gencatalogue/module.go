//go:build generate

// This file keeps the module that the command reads in go.mod. It is never
// built: the exporter must not link go-dcgm through this package.

package main

import _ "github.com/NVIDIA/go-dcgm/pkg/dcgm" // for its const_fields.go
