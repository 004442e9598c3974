// Package lint pins the versions of what make lint and make bench-compare run, by its go.mod: a
// module of its own, so that the exporter's has none of its dependencies.
package lint
