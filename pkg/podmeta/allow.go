package podmeta

import (
	"errors"
	"fmt"
	"regexp"
)

// AllowList returns Options.KeepLabel for regular expressions of label names, of
// which one must match, anywhere in the name. Without any, all labels are kept, as in
// dcgm-exporter. All bad expressions are told at once.
func AllowList(expressions ...string) (func(name string) bool, error) {
	var (
		compiled []*regexp.Regexp
		bad      []error
	)
	for _, text := range expressions {
		re, err := regexp.Compile(text)
		if err != nil {
			bad = append(bad, fmt.Errorf("compile allow-list of pod labels %q: %w", text, err))
			continue
		}
		compiled = append(compiled, re)
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	return func(name string) bool {
		for _, re := range compiled {
			if re.MatchString(name) {
				return true
			}
		}
		return len(compiled) == 0
	}, nil
}
