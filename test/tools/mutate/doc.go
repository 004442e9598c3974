// Package mutate pins, in its go.mod, the version of the tool that make mutate runs.
package mutate
