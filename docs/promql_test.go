package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestQueries checks that each PromQL example in a page is an expression, or
// several with empty lines between them.
func TestQueries(t *testing.T) {
	found := 0
	for path, text := range every(t) {
		for _, m := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(text, -1) {
			for _, query := range strings.Split(m[1], "\n\n") {
				found++
				if _, err := parser.ParseExpr(query); err != nil {
					t.Errorf("%s: %v in\n%s", path, err, query)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no page has a query")
	}
}
