// Package lint pins, in its go.mod, the versions of the tools for make lint and make bench-compare. It is a separate
// module, to keep their dependencies out of the exporter's module.
package lint
