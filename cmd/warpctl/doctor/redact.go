package doctor

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"warpgauge/extensions/live/apiv1"
)

// redactor replaces names with stable pseudonyms, so that lines remain comparable. It removes secrets completely.
//
// It learns names from places that hold only names: API answers, system files, keys of log lines. Then it replaces these
// names wherever they appear as a word. It cannot recognise a name that no source holds and no pattern matches.
type redactor struct {
	names  map[string]string // lower case name → pseudonym
	others []string          // names that are not single words, longest first
	counts map[string]int
}

func newRedactor() *redactor { return &redactor{names: map[string]string{}, counts: map[string]int{}} }

// public lists harmless names whose replacement would make texts hard to read.
var public = map[string]bool{
	"": true, "-": true, "root": true, "warpgauge": true, "default": true, "kube-system": true, "gpu-operator": true, "localhost": true,
	"true": true, "false": true, "null": true, "none": true, "unknown": true, "nvidia": true, "nvml": true, "dcgm": true, "rocm": true, "fake": true, "kubelet": true,
	"self": true, "gauge": true, "counter": true, "nvidia-smi": true,
	// prefixes of pseudonyms
	"pod": true, "namespace": true, "container": true, "job": true, "user": true, "host": true, "domain": true, "process": true, "uid": true, "id": true, "ip": true, "mac": true, "email": true,
}

// name returns the pseudonym of a name.
func (r *redactor) name(kind, name string) string {
	key := strings.ToLower(strings.TrimSpace(name))
	if public[key] {
		return name
	}
	if known, ok := r.names[key]; ok {
		return known
	}
	r.counts[kind]++
	out := fmt.Sprintf("%s-%d", kind, r.counts[kind])
	r.names[key] = out
	if words.FindString(key) != key {
		r.others = append(r.others, strings.TrimSpace(name))
		if text, err := json.Marshal(name); err == nil && string(text) != `"`+name+`"` {
			escaped := strings.Trim(string(text), `"`) // as files in JSON have it
			r.names[strings.ToLower(escaped)] = out
			r.others = append(r.others, escaped)
		}
		slices.SortFunc(r.others, func(a, b string) int { return len(b) - len(a) })
	}
	return out
}

// host learns a host name, its short form and its domain.
func (r *redactor) host(name string) {
	if _, err := netip.ParseAddr(name); err == nil || name == "" {
		return
	}
	name = strings.Trim(name, ".")
	first, domain, full := strings.Cut(name, ".")
	of := r.name("host", first)
	if full && !public[strings.ToLower(name)] {
		r.names[strings.ToLower(name)] = of
		r.name("domain", domain)
	}
}

// learn learns the names in the facts.
func (r *redactor) learn(f *Facts, environ []string, passwd, resolv string) {
	e := &f.exporter
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "NODE_NAME", "HOSTNAME", "HOST":
			r.host(value)
		case "POD_NAME":
			r.name("pod", value)
		case "POD_NAMESPACE":
			r.name("namespace", value)
		case "USER", "LOGNAME", "SUDO_USER":
			r.name("user", value)
		}
	}
	for l := range strings.Lines(passwd) {
		if p := strings.Split(l, ":"); len(p) > 2 && len(p[2]) >= 4 && p[2] != "65534" { // user ids from 1000 belong to persons
			r.name("user", p[0])
		}
	}
	for l := range strings.Lines(resolv) {
		if p := strings.Fields(l); len(p) > 1 && (p[0] == "search" || p[0] == "domain") {
			for _, d := range p[1:] {
				if d = strings.Trim(d, "."); strings.Contains(d, ".") && !strings.HasSuffix(d, "cluster.local") {
					r.name("domain", d)
				}
			}
		}
	}
	if e.list != nil {
		r.names[strings.ToLower(e.list.Hash)] = e.list.Hash // not private: equal for all users of the list
	}
	if d := e.devices; d != nil {
		r.host(d.Hostname)
		for i := range d.Devices {
			r.device(&d.Devices[i])
		}
	}
	if f := e.fields; f != nil {
		for i := range f.Devices {
			for j := range f.Devices[i].Fields {
				r.labels(f.Devices[i].Fields[j].Labels)
			}
		}
	}
}

func (r *redactor) device(d *apiv1.Device) {
	for _, u := range d.Users {
		r.name("pod", u.Pod)
		r.name("namespace", u.Namespace)
		r.name("container", u.Container)
		r.name("job", u.Job)
		r.name("uid", u.PodUID)
	}
	for _, p := range d.Processes {
		r.name("process", p.Name)
		r.name("job", p.Job)
		for i, part := range strings.SplitN(p.Pod, "/", 3) {
			r.name([]string{"namespace", "pod", "container"}[i], part)
		}
	}
	r.labels(d.Labels)
	r.labels(d.Facts)
}

func (r *redactor) labels(labels map[string]string) {
	for name, value := range labels {
		if kind := kindOf(name); kind != "" {
			r.name(kind, value)
		}
	}
}

// kinds maps keys to the kind of name in their value.
var kinds = func() map[string]string {
	out := map[string]string{}
	for kind, keys := range map[string]string{
		"pod": "pod pod_name podname", "namespace": "namespace pod_namespace", "container": "container container_name", "uid": "container_id pod_uid poduid",
		"job": "job hpc_job job_id jobid slurm_job_id slurm_jobid", "user": "user username user_name login",
		"host": "host hostname node nodename node_name", "process": "process process_name comm command exe",
	} {
		for _, key := range strings.Fields(keys) {
			out[key] = kind
		}
	}
	return out
}()

// kindOf returns the kind of name in a key's value, or "".
func kindOf(key string) string {
	return kinds[strings.TrimPrefix(strings.ToLower(strings.ReplaceAll(key, "-", "_")), "exported_")]
}

const gone = "[redacted]"

// Patterns of secrets, in order of replacement.
var secrets = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?(-----END [A-Z0-9 ]+-----|\z)`), gone},
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'@]+@`), "${1}" + gone + "@"},
	{regexp.MustCompile(`(?i)((?:proxy-)?authorization\\?["']?\s*[:=]\s*\\?["']?)(?:[A-Za-z]+\s+)?[^\s"'\\,]+`), "${1}" + gone},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}`), "${1} " + gone},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_=-]{6,}(\.[A-Za-z0-9_=-]+)*`), gone},
	{regexp.MustCompile(`\$2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{20,}`), gone},
	{regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{12,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bglpat-[A-Za-z0-9_-]{16,}|\bxox[a-z]-[A-Za-z0-9-]{10,}|\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{16,}`), gone},
	{regexp.MustCompile(`(?i)([A-Za-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|cookie)[A-Za-z0-9_.-]*\\?["']?\s*[:=]\s*)(\\?"[^"\\]*\\?"|'[^']*'|[^\s,;}&]+)`), "${1}" + gone},
	{regexp.MustCompile(`(?i)(--?[a-z-]*(?:password|secret|token|key|credential)[a-z-]*[ =])("[^"]*"|\S+)`), "${1}" + gone},
}

var (
	// keyed matches a key and its value in JSON, logs and labels. Quotation marks may be escaped.
	keyed   = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_-]*)(\\?"\s*:\s*|=)(\\?"(?:[^"\\]*)\\?"|[^\s"',;{}\[\]()]+)`)
	spoken  = regexp.MustCompile(`(?i)\b(pod|job|user|host|node|container|namespace)( (?:id )?\\?["']?)([A-Za-z0-9._/-]*[0-9][A-Za-z0-9._/-]*|\\?"[^"\\]+\\?")`)
	home    = regexp.MustCompile(`(/home/|/Users/)([^/\s"':]+)`)
	email   = regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+`)
	mac     = regexp.MustCompile(`\b([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b`)
	lookup  = regexp.MustCompile(`(\blookup |\bhost \\?"|://)([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)`)
	uuid    = regexp.MustCompile(`(?i)((?:GPU|MIG)-)?[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}`)
	longID  = regexp.MustCompile(`\b[0-9a-f]{64}\b`) // container ids; also checksums, which are public
	address = regexp.MustCompile(`[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f.]*[0-9A-Fa-f]?|\b[0-9]{1,3}(\.[0-9]{1,3}){3}\b`)
	slurm   = regexp.MustCompile(`(?i)\b(job|uid)_([0-9]+)`)
)

// text replaces the private parts of a text.
func (r *redactor) text(s string) string {
	for _, p := range secrets {
		s = p.pattern.ReplaceAllString(s, p.with)
	}
	s = email.ReplaceAllStringFunc(s, func(m string) string { return r.name("email", m) })
	// replace replaces the matches of a pattern; f gets the groups.
	replace := func(pattern *regexp.Regexp, f func([]string) string) {
		s = pattern.ReplaceAllStringFunc(s, func(m string) string { return f(pattern.FindStringSubmatch(m)) })
	}
	replace(home, func(p []string) string { return p[1] + r.name("user", p[2]) })
	replace(keyed, func(p []string) string {
		kind, value := kindOf(p[1]), strings.Trim(p[3], `\"`)
		if kind == "" || value == "" || strings.Contains(value, gone) {
			return p[0]
		}
		return p[1] + p[2] + strings.Replace(p[3], value, r.parts(kind, value), 1)
	})
	replace(spoken, func(p []string) string {
		kind, value := kindOf(p[1]), strings.Trim(p[3], `\"`)
		if kind != "job" && kind != "pod" && strings.Trim(value, "0123456789") == "" {
			return p[0] // a user id
		}
		return p[1] + p[2] + strings.Replace(p[3], value, r.parts(kind, value), 1)
	})
	replace(slurm, func(p []string) string {
		return p[1] + "_" + r.name(map[bool]string{true: "job", false: "user"}[!strings.EqualFold(p[1], "uid")], p[2])
	})
	replace(lookup, func(p []string) string {
		if _, err := netip.ParseAddr(p[2]); err != nil && !known(p[2]) {
			r.host(p[2])
		}
		return p[0] // words are replaced below
	})
	s = mac.ReplaceAllStringFunc(s, func(m string) string { return r.name("mac", m) })
	s = uuid.ReplaceAllStringFunc(s, func(m string) string {
		if len(m) > 36 { // a GPU's UUID
			return m
		}
		return r.name("uid", strings.ReplaceAll(m, "_", "-"))
	})
	s = longID.ReplaceAllStringFunc(s, func(m string) string { return r.name("id", m) })
	s = address.ReplaceAllStringFunc(s, func(m string) string {
		a, err := netip.ParseAddr(m)
		if err != nil || a.IsLoopback() || a.IsUnspecified() {
			return m
		}
		return r.name("ip", a.String())
	})
	for _, o := range r.others {
		s = strings.ReplaceAll(s, o, r.names[strings.ToLower(o)])
	}
	return r.words(s)
}

// known reports whether a host belongs to public documentation.
func known(host string) bool {
	return slices.Contains([]string{"github.com", "docs.nvidia.com", "prometheus.io", "pkg.go.dev"}, host) || public[host]
}

// parts replaces each part of namespace/pod/container.
func (r *redactor) parts(kind, value string) string {
	p := strings.Split(value, "/")
	if len(p) == 1 || kind == "process" || kind == "user" || kind == "host" {
		if kind == "host" {
			r.host(value)
		}
		return r.name(kind, value)
	}
	kinds := []string{"namespace", "pod", "container"}
	for i := range p {
		if i < len(kinds) {
			p[i] = r.name(kinds[i], p[i])
		}
	}
	return strings.Join(p, "/")
}

// words replaces names that stand as a word, or as a part of a word between -, . or _. It replaces
// short numbers only after a key, where they are jobs.
func (r *redactor) words(s string) string { return words.ReplaceAllStringFunc(s, r.word) }

var words = regexp.MustCompile(`[0-9A-Za-z._-]+`)

// maxParts bounds the parts of a word (between -, . or _) in the search for names.
const maxParts = 64

func (r *redactor) word(w string) string {
	var b strings.Builder
	low := strings.ToLower(w) // same length, because it is ASCII
	for len(w) > 0 {
		var ends [maxParts]int // ends of the first parts
		n := 0
		for i := 1; i <= len(w) && n < maxParts; i++ {
			if i == len(w) || isAlnum(w[i-1]) != isAlnum(w[i]) {
				ends[n] = i
				n++
			}
		}
		used := ends[0]
		for n > 0 {
			n--
			if p, ok := r.names[low[:ends[n]]]; ok && !shortNumber(w[:ends[n]]) {
				b.WriteString(p)
				w, low, used = w[ends[n]:], low[ends[n]:], 0
				break
			}
		}
		b.WriteString(w[:used])
		w, low = w[used:], low[used:]
	}
	return b.String()
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// shortNumber reports whether a word is a number that could be an ordinary value.
func shortNumber(s string) bool { return len(s) < 5 && strings.Trim(s, "0123456789") == "" }
