package exposition

import "strings"

// AcceptsGzip reports whether an Accept-Encoding header allows gzip. No header
// and what cannot be understood mean no. It does not allocate.
func AcceptsGzip(acceptEncoding string) bool {
	wildcard := false
	for item := range strings.SplitSeq(acceptEncoding, ",") {
		coding, _, _ := strings.Cut(item, ";")
		switch coding = strings.TrimSpace(coding); {
		case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
			return !refused(item) // says more than a * does
		case coding == "*":
			wildcard = !refused(item)
		}
	}
	return wildcard
}
