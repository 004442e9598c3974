// Package lint pins the version of deadcode, which make lint runs, by its go.mod: a
// module of its own, so that the exporter's has none of its dependencies.
package lint
