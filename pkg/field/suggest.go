package field

import "strings"

// Suggest returns the known name that somebody who wrote name most likely
// meant, and false if none is near. Names that the catalogue uses itself win
// over aliases that are as near.
func Suggest(name string) (string, bool) {
	if name == "" || len(name) > 200 {
		return "", false
	}
	for _, prefix := range []string{"", "DCGM_", "DCGM_FI_", "DCGM_FI_DEV_", "DCGM_FI_PROF_"} {
		if full := prefix + strings.ToUpper(name); full != name && known(full) {
			return full, true
		}
	}
	if small := strings.ToLower(name); small != name && known(small) {
		return small, true
	}
	return nearest(name, index().names)
}

func known(name string) bool {
	_, _, ok := ByName(name)
	return ok
}

// nearest returns the candidate with the smallest edit distance to word, case
// aside, the first of several; none if more than a fifth of the letters (at
// least two) would have to change.
func nearest(word string, candidates []string) (string, bool) {
	word = strings.ToUpper(word)
	best, limit := "", max(2, len(word)/5)
	for _, c := range candidates {
		if abs(len(c)-len(word)) > limit {
			continue
		}
		if d := distance(word, strings.ToUpper(c), limit); d <= limit {
			if d == 0 {
				return c, true
			}
			best, limit = c, d-1
		}
	}
	return best, best != ""
}

// distance returns how many bytes have to be inserted, deleted, replaced or
// swapped with their neighbour to make b of a, or limit+1 if more than limit.
func distance(a, b string, limit int) int {
	if abs(len(a)-len(b)) > limit {
		return limit + 1
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > limit {
			return limit + 1
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

func abs(n int) int { return max(n, -n) }
