// Package lint pins, in its go.mod, the versions of the tools that make lint and make bench-compare
// run. It is a module of its own, so that the exporter's module has none of their dependencies.
package lint
