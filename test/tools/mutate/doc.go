// Package mutate pins, in its go.mod, the version of the tool for make mutate.
package mutate
