package pages

import (
	"testing"

	"warpgauge/internal/testkit"
)

func TestCommands(t *testing.T) {
	page := "Run `x no`:\n\n    x a 'b c' \\\n      --d=\"e | f\" | y g   # h\n    z i && sudo x m\n    z -- x n ; x o\n\n```console\n$ x j >k\nx '' #l\n```\n"
	want := [][]string{{"x", "j"}, {"x", ""}, {"x", "a", "b c", "--d=e | f"}, {"x", "m"}, {"x", "n"}, {"x", "o"}}
	testkit.Equal(t, "commands", want, Commands(page, "x"))
}
