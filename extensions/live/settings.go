package live

import "warpgauge/pkg/config"

// Settings holds the extension's flag.
type Settings struct {
	Page string // PageOff, PageAnonymous or PageFull
}

// Values of Settings.Page.
const (
	PageOff       = "off"       // neither live page nor API
	PageAnonymous = "anonymous" // both, but without pods, jobs, users and processes
	PageFull      = "full"
)

// Flags adds the extension's flag.
func (s *Settings) Flags(set *config.Set) {
	set.Add(config.Section{Origin: config.Own, Flags: []config.Flag{{
		Name: "web-page", Env: "WARPGAUGE_WEB_PAGE", Group: config.GroupWeb, Value: config.OneOf(&s.Page, PageOff, PageAnonymous, PageFull),
		Metavar: "off|anonymous|full", Usage: "The live page on / and the JSON API under /api/v1/. off: neither; anonymous: without pods, jobs and processes; full: with them.",
	}}})
}
