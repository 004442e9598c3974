package field

import (
	_ "embed" // xids.txt
	"fmt"
	"strings"
	"sync"
)

const lastXID = 172

// XIDText returns NVIDIA's short text of an XID code, as in dcgm-exporter's label err_msg: "Unknown Error"
// for a code outside of 0 to 172.
func XIDText(code int) string {
	text, known := xidTexts()[code]
	switch {
	case known:
		return text
	case code < 0 || code > lastXID:
		return "Unknown Error"
	}
	return "Unused"
}

//go:embed xids.txt
var xidFile string

// xidTexts returns the texts by code.
var xidTexts = sync.OnceValue(func() map[int]string {
	out := map[int]string{}
	for line := range strings.Lines(xidFile) {
		code, text, found := strings.Cut(strings.TrimSpace(line), "\t")
		if n := 0; found {
			if _, err := fmt.Sscan(code, &n); err != nil {
				panic("xids.txt: " + line)
			}
			out[n] = text
		}
	}
	return out
})
