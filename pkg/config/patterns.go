package config

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// patterns is a comma list of regular expressions that may also be given several
// times.
type patterns struct{ at *[]*regexp.Regexp }

func (p patterns) Set(text string) error {
	var all []*regexp.Regexp
	for i, item := range splitPatterns(text) {
		r, err := regexp.Compile(item)
		if err != nil {
			return patternError(i+1, item, err)
		}
		all = append(all, r)
	}
	*p.at = append(*p.at, all...)
	return nil
}

func (p patterns) String() string {
	var all []string
	for _, r := range *p.at {
		all = append(all, r.String())
	}
	return strings.Join(all, ",")
}

func (p patterns) reset() { *p.at = nil }

// splitPatterns splits at commas outside of brackets, so that "a{1,2}" and
// "[,;]" are what they look like. Blanks around an expression do not count.
func splitPatterns(text string) (out []string) {
	start, depth := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++ // whatever is escaped
		case '[', '{', '(':
			depth++
		case ']', '}', ')':
			depth--
		case ',':
			if depth <= 0 {
				out, start, depth = append(out, text[start:i]), i+1, 0
			}
		}
	}
	out = append(out, text[start:])
	kept := out[:0]
	for _, item := range out {
		if item = strings.TrimSpace(item); item != "" {
			kept = append(kept, item)
		}
	}
	return kept
}

// patternError says what is wrong with an expression, where, and what to do.
func patternError(number int, item string, err error) error {
	why, where := err.Error(), ""
	var bad *syntax.Error
	if errors.As(err, &bad) {
		why = bad.Code.String()
		if i := strings.Index(item, bad.Expr); bad.Expr != "" && i >= 0 {
			where = fmt.Sprintf(" at character %d", utf8.RuneCountInString(item[:i])+1)
		}
	}
	return fmt.Errorf("expression %d, %q, is no regular expression: %s%s; correct it (syntax: https://github.com/google/re2/wiki/Syntax), or leave it out to let all labels through",
		number, item, why, where)
}
